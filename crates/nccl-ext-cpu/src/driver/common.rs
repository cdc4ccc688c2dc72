//! What both drivers say of themselves.

use core::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::{AtomicI32, Ordering};

use nccl_ext_core::driver::{
    ATTRIBUTE_MULTIPROCESSOR_COUNT, CuDevice, CuDevicePtr, CuResult, DriverApi,
};

/// Multiprocessors of the device that this backend stands for; the limits of low latency (EP 3.2)
/// follow from it.
pub(crate) const SM_COUNT: u32 = 132;

/// As many as the world with the most of them has so far.
static DEVICES: AtomicI32 = AtomicI32::new(1);

/// A rank of a world is on the device of this ordinal.
pub(crate) fn note_device(ordinal: i32) {
    DEVICES.fetch_max(ordinal.saturating_add(1), Ordering::Relaxed);
}

/// A driver that knows every call of the newest CUDA 13.
const VERSION: c_int = 13_030;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: CuResult = CuResult(2);

/// The entries that both have.
pub(super) const COMMON: DriverApi = DriverApi {
    init: Some(init),
    version: Some(version),
    device_count: Some(device_count),
    device_attribute: Some(device_attribute),
    error_name: Some(error_name),
    ..DriverApi::NONE
};

/// # Safety
/// `to` is NULL or writable.
pub(super) unsafe fn store<T>(to: *mut T, value: T) -> CuResult {
    if to.is_null() {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: this function's contract.
    unsafe { to.write(value) };
    CuResult::SUCCESS
}

unsafe extern "C" fn init(_flags: c_uint) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn version(version: *mut c_int) -> CuResult {
    // SAFETY: the C contract of cuDriverGetVersion.
    unsafe { store(version, VERSION) }
}

unsafe extern "C" fn device_count(count: *mut c_int) -> CuResult {
    // SAFETY: the C contract of cuDeviceGetCount.
    unsafe { store(count, DEVICES.load(Ordering::Relaxed)) }
}

unsafe extern "C" fn device_attribute(
    value: *mut c_int,
    attribute: c_int,
    device: CuDevice,
) -> CuResult {
    if !is_device(device) || attribute != ATTRIBUTE_MULTIPROCESSOR_COUNT {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the C contract of cuDeviceGetAttribute.
    unsafe { store(value, SM_COUNT as c_int) }
}

pub(super) fn pointer(address: CuDevicePtr) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// Whether there is a device of that ordinal.
pub(super) fn is_device(ordinal: CuDevice) -> bool {
    (0..DEVICES.load(Ordering::Relaxed)).contains(&ordinal)
}

unsafe extern "C" fn error_name(error: CuResult, name: *mut *const c_char) -> CuResult {
    let text = match error {
        CuResult::SUCCESS => c"CUDA_SUCCESS",
        CuResult::INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        CuResult::NOT_READY => c"CUDA_ERROR_NOT_READY",
        CuResult::LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
        _ => return CuResult::INVALID_VALUE,
    };
    // SAFETY: the C contract of cuGetErrorName.
    unsafe { store(name, text.as_ptr()) }
}
