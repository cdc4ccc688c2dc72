//! The deferred driver's contexts: one for each device, which a thread may have made current.

use core::ffi::c_int;
use std::cell::Cell;

use nccl_ext_core::driver::{CuContext, CuDevice, CuResult};

use super::common::{is_device, store};
use super::waits::code;
use crate::queue;

/// A context is only a name: this plus the ordinal.
const FIRST: usize = 0xC000;

thread_local! {
    /// The ordinal of the device whose context is current, plus 1; 0 for none.
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
}

/// The device that the calling thread works on; the first where it made none current.
pub(crate) fn current_device() -> i32 {
    (CURRENT.get() - 1).max(0)
}

pub(super) unsafe extern "C" fn retain(context: *mut CuContext, device: CuDevice) -> CuResult {
    if !is_device(device) {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the C contract of cuDevicePrimaryCtxRetain.
    unsafe { store(context, core::ptr::without_provenance_mut(FIRST + device as usize)) }
}

pub(super) unsafe extern "C" fn get(context: *mut CuContext) -> CuResult {
    let current = match CURRENT.get() {
        0 => core::ptr::null_mut(),
        number => core::ptr::without_provenance_mut(FIRST + number as usize - 1),
    };
    // SAFETY: the C contract of cuCtxGetCurrent.
    unsafe { store(context, current) }
}

pub(super) unsafe extern "C" fn set(context: CuContext) -> CuResult {
    if context.is_null() {
        CURRENT.set(0);
        return CuResult::SUCCESS;
    }
    let ordinal = context.addr().checked_sub(FIRST).and_then(|n| CuDevice::try_from(n).ok());
    match ordinal.filter(|&ordinal| is_device(ordinal)) {
        Some(ordinal) => {
            CURRENT.set(ordinal + 1);
            CuResult::SUCCESS
        }
        None => CuResult::INVALID_VALUE,
    }
}

/// Waits for the streams of the calling thread's rank, which on machines has a context of its own.
pub(super) unsafe extern "C" fn synchronize() -> CuResult {
    code(queue::wait_for_device(current_device()))
}
