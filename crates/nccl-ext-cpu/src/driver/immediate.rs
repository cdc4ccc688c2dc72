//! The driver of the backend whose memory is the host's and whose calls are complete when they return.

use core::ffi::{c_int, c_uint, c_void};

use nccl_ext_core::driver::{
    CuContext, CuDevicePtr, CuResult, DriverApi, MEMORY_HOST, POINTER_MEMORY_TYPE,
};
use nccl_ext_core::raw::cudaStream_t;

use super::common::{COMMON, pointer, store};

/// Events and contexts are absent: nothing is ever pending.
pub(crate) const TABLE: DriverApi = DriverApi {
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
    ..COMMON
};

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
    unsafe { store(value.cast::<c_uint>(), MEMORY_HOST) }
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
