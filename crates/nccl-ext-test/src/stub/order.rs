//! Streams and events of a driver whose work is done at once. They are numbers, and their calls are
//! not on record.

use core::ffi::c_uint;
use std::sync::atomic::{AtomicUsize, Ordering};

use nccl_ext_core::driver::{CuEvent, CuResult, DriverApi};
use nccl_ext_core::raw::cudaStream_t;

/// The rest of a driver over them.
pub(super) const TABLE: DriverApi = DriverApi {
    stream_create: Some(stream_create),
    stream_destroy: Some(stream_call),
    stream_synchronize: Some(stream_call),
    stream_query: Some(stream_call),
    stream_wait_event: Some(stream_wait_event),
    event_create: Some(event_create),
    event_record: Some(event_record),
    event_synchronize: Some(event_call),
    event_query: Some(event_call),
    event_destroy: Some(event_call),
    ..DriverApi::NONE
};

/// Above the addresses that tests make up.
fn next<T>() -> *mut T {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1_0000);
    core::ptr::without_provenance_mut(NEXT.fetch_add(1, Ordering::Relaxed))
}

unsafe extern "C" fn stream_create(out: *mut cudaStream_t, _: c_uint) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = next() };
    CuResult::SUCCESS
}

unsafe extern "C" fn stream_call(_: cudaStream_t) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn stream_wait_event(_: cudaStream_t, _: CuEvent, _: c_uint) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn event_create(out: *mut CuEvent, _: c_uint) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = next() };
    CuResult::SUCCESS
}

unsafe extern "C" fn event_record(_: CuEvent, _: cudaStream_t) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn event_call(_: CuEvent) -> CuResult {
    CuResult::SUCCESS
}
