//! Masks and asynchronous errors (EP 6.2).

use core::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nccl_ep_sys::ncclEpGroup_t;

use super::exchange::{Exchange, Packet, Patience};
use super::geometry;
use super::group::{self, View};
use super::handle;
use super::low_latency::require_nothing_staged;
use super::settings::{Algorithm, Settings};
use crate::entry::Scope;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What a low-latency group with `enable_mask` has more than others.
pub(super) struct Masks {
    pub(super) exchange: Arc<Exchange>,
    /// By rank; 0 is masked, everything else active.
    active: Mutex<Vec<c_int>>,
    /// The asynchronous error flag: some wait ran out of time.
    error: AtomicBool,
    /// Whether a handle was ever made, and with it the buffer that a clean works on.
    handles: AtomicBool,
    /// Operations of this rank so far. They are not compared with the peers'.
    operations: Mutex<u64>,
}

impl Masks {
    pub(super) fn new(exchange: Arc<Exchange>, ranks: usize) -> Self {
        Self {
            exchange,
            active: Mutex::new(vec![1; ranks]),
            error: AtomicBool::new(false),
            handles: AtomicBool::new(false),
            operations: Mutex::new(0),
        }
    }

    pub(super) fn note_handle(&self) {
        self.handles.store(true, Ordering::Relaxed);
    }

    /// The number of an operation that starts now.
    pub(super) fn next_operation(&self) -> u64 {
        let mut operations = handle::lock(&self.operations);
        *operations += 1;
        *operations
    }

    pub(super) fn active(&self) -> Vec<bool> {
        handle::lock(&self.active).iter().map(|&value| value != 0).collect()
    }

    /// The packets of an operation. Who is late is masked from now on.
    pub(super) fn collect(&self, group: &View<'_>, operation: u64) -> Vec<Option<Arc<Packet>>> {
        let lost = |rank| group.member.is_lost(rank);
        let (packets, late) =
            self.exchange.collect(operation, &self.active(), &patience(group, &lost));
        let mut active = handle::lock(&self.active);
        for rank in late {
            active[rank] = 0;
            self.error.store(true, Ordering::Relaxed);
        }
        packets
    }
}

fn patience<'a>(group: &View<'_>, lost: &'a dyn Fn(usize) -> bool) -> Patience<'a> {
    Patience { me: group.member.rank(), timeout: group.settings.timeout, lost }
}

/// Runs `body` on a group that has masks.
///
/// # Safety
/// `group` is NULL or a live group of this backend.
unsafe fn with_masks(
    scope: Option<&Scope>,
    group: ncclEpGroup_t,
    body: impl FnOnce(&View<'_>, &Masks) -> Outcome,
) -> Outcome {
    let throw = FailureClass::Throw;
    // SAFETY: this function's contract.
    let group = unsafe { group::shared(group, throw)? };
    let view = group.view()?;
    if let Some(scope) = scope {
        scope.enter(view.member);
    }
    require(view.settings.mask, || {
        let rule = "the group was created with a mask";
        let ret = FailureClass::Return;
        Refusal::usage(ret, "enable_mask", rule, "not 0", 0)
    })?;
    let low = view.settings.algorithm == Algorithm::LowLatency;
    let masks = view.masks.filter(|_| low).ok_or_else(|| {
        let rule = "only low latency has a mask";
        Refusal::usage(throw, "ep_group", rule, "a low-latency group", "high throughput")
    })?;
    body(&view, masks)
}

/// # Safety
/// `group` is NULL or live; `out` is NULL or has an element for each rank.
pub(super) unsafe fn query(group: ncclEpGroup_t, out: *mut c_int) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(None, group, |_, masks| {
            require(!out.is_null(), || Refusal::null(FailureClass::Throw, "mask_status"))?;
            let active = handle::lock(&masks.active);
            core::ptr::copy_nonoverlapping(active.as_ptr(), out, active.len());
            Ok(())
        })
    }
}

/// # Safety
/// As [`query`].
pub(super) unsafe fn update(group: ncclEpGroup_t, mask: *const c_int) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(None, group, |_, masks| {
            require(!mask.is_null(), || Refusal::null(FailureClass::Throw, "mask"))?;
            let mut active = handle::lock(&masks.active);
            core::ptr::copy_nonoverlapping(mask, active.as_mut_ptr(), active.len());
            Ok(())
        })
    }
}

/// # Safety
/// `group` is NULL or live; `out` is NULL or writable.
pub(super) unsafe fn async_error(group: ncclEpGroup_t, out: *mut c_int) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(None, group, |_, masks| {
            require(!out.is_null(), || Refusal::null(FailureClass::Throw, "error_out"))?;
            out.write(masks.error.load(Ordering::Relaxed).into());
            Ok(())
        })
    }
}

/// # Safety
/// `group` is NULL or live.
pub(super) unsafe fn clear_error(group: ncclEpGroup_t) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(None, group, |_, masks| {
            masks.error.store(false, Ordering::Relaxed);
            Ok(())
        })
    }
}

/// # Safety
/// `group` is NULL or live.
pub(super) unsafe fn clean(scope: &Scope, group: ncclEpGroup_t) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(Some(scope), group, |view, masks| {
            check_clean(view.settings, masks.handles.load(Ordering::Relaxed))?;
            require_nothing_staged(handle::lock(view.staging).pending)?;
            let lost = |rank| view.member.is_lost(rank);
            masks.exchange.clean(&masks.active(), &patience(view, &lost));
            // Whoever was late in the barriers is active again, too.
            handle::lock(&masks.active).fill(1);
            Ok(())
        })
    }
}

fn check_clean(settings: &Settings, handles: bool) -> Outcome {
    let throw = FailureClass::Throw;
    require(handles || settings.rdma_buffer_size != 0, || {
        let rule = "there is a communication buffer to clean";
        let expected = "a handle, or rdma_buffer_size in the group configuration";
        Refusal::usage(throw, "ep_group", rule, expected, "none yet")
    })?;
    // It lays the buffer out for rank-major handles of 32 experts a token (EP 12, #13).
    let buffer = geometry::ll_buffer(settings, true, 32);
    let wrong = buffer.regions.into_iter().find(|bytes| !bytes.is_multiple_of(16));
    require(wrong.is_none(), || {
        let rule = "the regions of a rank-major buffer are multiples of 16 bytes";
        let found = format_args!("{} bytes", wrong.unwrap_or(0)).to_string();
        Refusal::argument(throw, "max_token_bytes", rule, "a multiple of 16", found)
    })?;
    require(settings.ranks <= 256, || {
        let rule = "the cleaning kernel has a thread for each rank";
        Refusal::usage(FailureClass::Trap, "comm", rule, "at most 256 ranks", settings.ranks)
    })
}
