//! A driver whose device memory is the host's.

use core::ffi::{c_int, c_void};
use std::cell::Cell;

use nccl_ext_core::driver::{CuContext, CuResult, DriverApi};
use nccl_ext_core::raw::cudaStream_t;

use super::kernels;

pub(crate) const TABLE: DriverApi = DriverApi {
    version: Some(version),
    device_attribute: Some(device_attribute),
    pointer_attribute: Some(pointer_attribute),
    context_get: Some(context_get),
    context_set: Some(context_set),
    primary_context_retain: Some(context_retain),
    context_synchronize: Some(context_synchronize),
    stream_is_capturing: Some(stream_is_capturing),
    copy_to_device: Some(copy_in),
    copy_to_host: Some(copy_out),
    fill: Some(fill),
    module_load: Some(kernels::load),
    module_function: Some(kernels::function),
    launch_kernel: Some(kernels::launch),
    host_alloc: Some(kernels::host_alloc),
    host_free: Some(kernels::host_free),
    ..super::order::TABLE
};

thread_local! {
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread's streams are being captured.
pub fn set_capturing(capturing: bool) {
    CAPTURING.set(capturing);
}

unsafe extern "C" fn version(out: *mut c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 12_050 };
    CuResult::SUCCESS
}

/// As many multiprocessors as a real device; whatever else is asked for is as many.
unsafe extern "C" fn device_attribute(out: *mut c_int, _: c_int, _: c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 132 };
    CuResult::SUCCESS
}

/// The stub knows no pointer, as the driver knows no ordinary host memory.
unsafe extern "C" fn pointer_attribute(_: *mut c_void, _: c_int, _: u64) -> CuResult {
    CuResult::INVALID_VALUE
}

/// None is current.
unsafe extern "C" fn context_get(out: *mut CuContext) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = core::ptr::null_mut() };
    CuResult::SUCCESS
}

unsafe extern "C" fn context_retain(out: *mut CuContext, _: c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = core::ptr::without_provenance_mut(16) };
    CuResult::SUCCESS
}

unsafe extern "C" fn context_set(_: CuContext) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn context_synchronize() -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn stream_is_capturing(_: cudaStream_t, out: *mut c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = CAPTURING.get().into() };
    CuResult::SUCCESS
}

unsafe extern "C" fn copy_in(
    to: u64,
    from: *const c_void,
    bytes: usize,
    _: cudaStream_t,
) -> CuResult {
    // SAFETY: the caller's ranges.
    unsafe { (to as *mut u8).copy_from(from.cast(), bytes) };
    CuResult::SUCCESS
}

unsafe extern "C" fn copy_out(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    _: cudaStream_t,
) -> CuResult {
    // SAFETY: the caller's ranges.
    unsafe { to.cast::<u8>().copy_from(from as *const u8, bytes) };
    CuResult::SUCCESS
}

unsafe extern "C" fn fill(to: u64, value: u8, bytes: usize, _: cudaStream_t) -> CuResult {
    // SAFETY: the caller's range.
    unsafe { (to as *mut u8).write_bytes(value, bytes) };
    CuResult::SUCCESS
}
