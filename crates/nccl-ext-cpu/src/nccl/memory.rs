//! Memory that windows can be made of.

use core::ffi::c_void;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::Mutex;

use nccl_ext_core::raw::{NCCL_WIN_REQUIRED_ALIGNMENT, ncclResult_t};

use crate::driver;
use crate::entry::entry;
use crate::lock::lock;
use crate::queue;
use crate::refusal::{FailureClass, Refusal, require};

/// Layouts by address: `ncclMemFree` is not told the size.
static ALLOCATED: Mutex<BTreeMap<usize, Layout>> = Mutex::new(BTreeMap::new());

fn no_memory(size: usize) -> Refusal {
    let (rule, found) = ("there is memory for it", format_args!("{size} bytes").to_string());
    Refusal::argument(FailureClass::Return, "size", rule, "less", found)
        .with_code(ncclResult_t::ncclSystemError)
}

/// The memory is not zeroed.
pub(super) unsafe extern "C" fn alloc(out: *mut *mut c_void, size: usize) -> ncclResult_t {
    entry("ncclMemAlloc", |_| {
        require(!out.is_null(), || Refusal::null(FailureClass::Return, "ptr"))?;
        let refusal = || no_memory(size);
        let align = NCCL_WIN_REQUIRED_ALIGNMENT as usize;
        let layout = Layout::from_size_align(size.max(1), align).map_err(|_| refusal())?;
        // SAFETY: the size is not zero.
        let memory = unsafe { std::alloc::alloc(layout) };
        require(!memory.is_null(), refusal)?;
        let address = memory.expose_provenance();
        lock(&ALLOCATED).insert(address, layout);
        // SAFETY: the C contract: writable.
        unsafe { out.write(memory.cast()) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn free(memory: *mut c_void) -> ncclResult_t {
    entry("ncclMemFree", |_| {
        if memory.is_null() {
            return Ok(());
        }
        let mut allocated = lock(&ALLOCATED);
        let layout = allocated.remove(&memory.addr()).ok_or_else(|| {
            Refusal::argument(
                FailureClass::Return,
                "ptr",
                "the memory came from ncclMemAlloc and is freed once",
                "such memory",
                format_args!("{memory:p}"),
            )
        })?;
        drop(allocated);
        // SAFETY: the entry said that this address was allocated with this layout, and removing
        // it made this call the only one to free it.
        unsafe { std::alloc::dealloc(memory.cast(), layout) };
        Ok(())
    })
}

/// Memory of the calling thread's current device.
pub(super) unsafe extern "C" fn alloc_deferred(out: *mut *mut c_void, size: usize) -> ncclResult_t {
    entry("ncclMemAlloc", |_| {
        require(!out.is_null(), || Refusal::null(FailureClass::Return, "ptr"))?;
        let align = NCCL_WIN_REQUIRED_ALIGNMENT as usize;
        let memory = queue::allocate(driver::current_device(), size, align);
        let memory = memory.ok_or_else(|| no_memory(size))?;
        // SAFETY: the C contract: writable.
        unsafe { out.write(memory.cast()) };
        Ok(())
    })
}

/// Refused while something that was enqueued may still use the memory.
pub(super) unsafe extern "C" fn free_deferred(memory: *mut c_void) -> ncclResult_t {
    entry("ncclMemFree", |_| if memory.is_null() { Ok(()) } else { queue::free(memory.addr()) })
}
