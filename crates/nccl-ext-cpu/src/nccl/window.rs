//! Windows: named ranges of a rank's memory.

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nccl_ext_core::raw::{ncclComm_t, ncclResult_t, ncclWindow_t};

use super::comm::member;
use crate::entry::{entry, store};
use crate::lock::lock;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Descriptor, Member};

/// A registered range.
#[derive(Clone)]
pub(crate) struct Window {
    owner: Arc<Member>,
    pub(crate) base: *mut u8,
    pub(crate) size: usize,
}

// SAFETY: it names memory and does not touch it.
unsafe impl Send for Window {}

/// Live windows by handle. A handle is only ever looked up, never followed.
static WINDOWS: Mutex<BTreeMap<usize, Window>> = Mutex::new(BTreeMap::new());

static NEXT: AtomicUsize = AtomicUsize::new(1);

struct Register;

// SAFETY: it points to nothing.
unsafe impl Descriptor for Register {
    const NAME: &'static str = "ncclCommWindowRegister";
}

fn windows() -> MutexGuard<'static, BTreeMap<usize, Window>> {
    lock(&WINDOWS)
}

/// The window behind a handle, which must belong to a rank of `member`'s world.
pub(crate) fn find(member: &Member, handle: ncclWindow_t, class: FailureClass) -> Outcome<Window> {
    let window = windows().get(&handle.addr()).cloned();
    window.filter(|window| window.owner.is_peer_of(member)).ok_or_else(|| {
        Refusal::argument(
            class,
            "win_hdl",
            "the window is registered on the group's communicator",
            "such a window",
            format_args!("{handle:p}"),
        )
    })
}

pub(super) unsafe extern "C" fn register(
    comm: ncclComm_t,
    buffer: *mut c_void,
    size: usize,
    out: *mut ncclWindow_t,
    _flags: c_int,
) -> ncclResult_t {
    entry("ncclCommWindowRegister", |scope| {
        // SAFETY: the C contract of ncclCommWindowRegister.
        let member = unsafe { member(comm)? };
        scope.enter(&member);
        require(!out.is_null(), || Refusal::null(FailureClass::Return, "win"))?;
        require(!buffer.is_null(), || Refusal::null(FailureClass::Return, "buff"))?;
        member.barrier(&Register)?;
        // Windows are numbered; a number that no window has had before is not NULL.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let handle: ncclWindow_t = core::ptr::without_provenance_mut(number);
        let window = Window { owner: member, base: buffer.cast(), size };
        windows().insert(handle.addr(), window);
        // SAFETY: the C contract: writable.
        unsafe { store(out, "win", handle) }
    })
}

/// Local, so that it can be called from a drop.
pub(super) unsafe extern "C" fn deregister(comm: ncclComm_t, handle: ncclWindow_t) -> ncclResult_t {
    entry("ncclCommWindowDeregister", |_| {
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: the C contract of ncclCommWindowDeregister.
        let member = unsafe { member(comm)? };
        find(&member, handle, FailureClass::UndefinedBehaviour)?;
        let removed = windows().remove(&handle.addr());
        require(removed.is_some(), || Refusal::null(FailureClass::UndefinedBehaviour, "win"))
    })
}

pub(super) unsafe extern "C" fn user_pointer(
    comm: ncclComm_t,
    handle: ncclWindow_t,
    out: *mut *mut c_void,
) -> ncclResult_t {
    entry("ncclWinGetUserPtr", |_| {
        // SAFETY: the C contract of ncclWinGetUserPtr.
        let member = unsafe { member(comm)? };
        let window = find(&member, handle, FailureClass::UndefinedBehaviour)?;
        // SAFETY: the C contract: NULL or writable.
        unsafe { store(out, "outUserPtr", window.base.cast()) }
    })
}
