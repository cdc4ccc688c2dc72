//! The driver's table: devices whose memory is the host's.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use nccl_ext_core::driver::{
    ATTRIBUTE_MULTIPROCESSOR_COUNT, CuContext, CuDevice, CuDevicePtr, CuResult, DriverApi,
    POINTER_MEMORY_TYPE,
};
use nccl_ext_core::raw::cudaStream_t;

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

/// `CU_MEMORYTYPE_HOST`.
const MEMORY_TYPE_HOST: c_uint = 1;

/// Events and contexts are absent: nothing is ever pending.
pub(crate) const TABLE: DriverApi = DriverApi {
    init: Some(init),
    version: Some(version),
    device_count: Some(device_count),
    device_attribute: Some(device_attribute),
    context_get: Some(context_get),
    context_set: Some(context_set),
    context_synchronize: Some(context_synchronize),
    stream_is_capturing: Some(stream_is_capturing),
    stream_synchronize: Some(stream_synchronize),
    pointer_attribute: Some(pointer_attribute),
    copy_to_device: Some(copy_to_device),
    copy_to_host: Some(copy_to_host),
    copy_on_device: Some(copy_on_device),
    fill: Some(fill),
    error_name: Some(error_name),
    ..DriverApi::NONE
};

/// # Safety
/// `to` is NULL or writable.
unsafe fn store<T>(to: *mut T, value: T) -> CuResult {
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
    let known = (0..DEVICES.load(Ordering::Relaxed)).contains(&device);
    if !known || attribute != ATTRIBUTE_MULTIPROCESSOR_COUNT {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the C contract of cuDeviceGetAttribute.
    unsafe { store(value, SM_COUNT as c_int) }
}

unsafe extern "C" fn context_get(context: *mut CuContext) -> CuResult {
    // SAFETY: the C contract of cuCtxGetCurrent.
    unsafe { store(context, core::ptr::null_mut()) }
}

unsafe extern "C" fn context_set(_context: CuContext) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn context_synchronize() -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn stream_is_capturing(_stream: cudaStream_t, status: *mut c_int) -> CuResult {
    // SAFETY: the C contract of cuStreamIsCapturing.
    unsafe { store(status, 0) }
}

unsafe extern "C" fn stream_synchronize(_stream: cudaStream_t) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn pointer_attribute(
    value: *mut c_void,
    attribute: c_int,
    _pointer: CuDevicePtr,
) -> CuResult {
    if attribute != POINTER_MEMORY_TYPE {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the C contract of cuPointerGetAttribute: the memory type is an unsigned int.
    unsafe { store(value.cast::<c_uint>(), MEMORY_TYPE_HOST) }
}

/// # Safety
/// As `memmove`; both may be anything when `bytes` is 0.
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> CuResult {
    if bytes == 0 {
        return CuResult::SUCCESS;
    }
    if to.is_null() || from.is_null() {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: this function's contract.
    unsafe { core::ptr::copy(from, to, bytes) };
    CuResult::SUCCESS
}

fn pointer(address: CuDevicePtr) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

unsafe extern "C" fn copy_to_device(
    to: CuDevicePtr,
    from: *const c_void,
    bytes: usize,
    _stream: cudaStream_t,
) -> CuResult {
    // SAFETY: the C contract of cuMemcpyHtoDAsync.
    unsafe { copy(pointer(to), from.cast(), bytes) }
}

unsafe extern "C" fn copy_to_host(
    to: *mut c_void,
    from: CuDevicePtr,
    bytes: usize,
    _stream: cudaStream_t,
) -> CuResult {
    // SAFETY: the C contract of cuMemcpyDtoHAsync.
    unsafe { copy(to.cast(), pointer(from), bytes) }
}

unsafe extern "C" fn copy_on_device(
    to: CuDevicePtr,
    from: CuDevicePtr,
    bytes: usize,
    _stream: cudaStream_t,
) -> CuResult {
    // SAFETY: the C contract of cuMemcpyDtoDAsync.
    unsafe { copy(pointer(to), pointer(from), bytes) }
}

unsafe extern "C" fn fill(
    to: CuDevicePtr,
    value: u8,
    bytes: usize,
    _stream: cudaStream_t,
) -> CuResult {
    if bytes == 0 {
        return CuResult::SUCCESS;
    }
    let to = pointer(to);
    if to.is_null() {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the C contract of cuMemsetD8Async.
    unsafe { to.write_bytes(value, bytes) };
    CuResult::SUCCESS
}

unsafe extern "C" fn error_name(error: CuResult, name: *mut *const c_char) -> CuResult {
    let text = match error {
        CuResult::SUCCESS => c"CUDA_SUCCESS",
        CuResult::INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        _ => return CuResult::INVALID_VALUE,
    };
    // SAFETY: the C contract of cuGetErrorName.
    unsafe { store(name, text.as_ptr()) }
}
