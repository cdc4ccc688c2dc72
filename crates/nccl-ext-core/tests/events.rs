//! Streams and events over a driver that only counts.

#![allow(clippy::unwrap_used, reason = "a test")]

use core::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nccl_ext_core::driver::{CuContext, CuDevice, CuEvent, CuResult, DriverApi};
use nccl_ext_core::raw::{NcclApi, cudaStream_t, ncclComm_t, ncclResult_t};
use nccl_ext_core::{Backend, Comm, Error, Event, MemorySpace, OwnedStream, Stream};

/// Streams and events that are made and not yet destroyed, and destroyed altogether.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static DESTROYED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn number(_comm: ncclComm_t, to: *mut c_int) -> ncclResult_t {
    // SAFETY: the contract of ncclCommCount and its like.
    unsafe { to.write(1) };
    ncclResult_t(0)
}

unsafe extern "C" fn abort(_comm: ncclComm_t) -> ncclResult_t {
    ncclResult_t(0)
}

unsafe extern "C" fn retain(context: *mut CuContext, _device: CuDevice) -> CuResult {
    // SAFETY: the contract of cuDevicePrimaryCtxRetain.
    unsafe { context.write(core::ptr::null_mut()) };
    CuResult::SUCCESS
}

unsafe extern "C" fn current(context: *mut CuContext) -> CuResult {
    // SAFETY: the contract of cuCtxGetCurrent.
    unsafe { context.write(core::ptr::null_mut()) };
    CuResult::SUCCESS
}

/// Anything but NULL.
unsafe fn make(to: *mut *mut c_void) -> CuResult {
    let number = 1 + LIVE.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller's.
    unsafe { to.write(core::ptr::without_provenance_mut(number)) };
    CuResult::SUCCESS
}

fn destroyed() -> CuResult {
    LIVE.fetch_sub(1, Ordering::SeqCst);
    DESTROYED.fetch_add(1, Ordering::SeqCst);
    CuResult::SUCCESS
}

unsafe extern "C" fn stream_create(stream: *mut cudaStream_t, flags: c_uint) -> CuResult {
    assert_eq!(flags, 1);
    // SAFETY: the contract of cuStreamCreate.
    unsafe { make(stream.cast()) }
}

unsafe extern "C" fn stream_destroy(_stream: cudaStream_t) -> CuResult {
    destroyed()
}

unsafe extern "C" fn event_create(event: *mut CuEvent, flags: c_uint) -> CuResult {
    assert_eq!(flags, 0);
    // SAFETY: the contract of cuEventCreate.
    unsafe { make(event) }
}

unsafe extern "C" fn event_record(_event: CuEvent, stream: cudaStream_t) -> CuResult {
    if stream.is_null() { CuResult::INVALID_VALUE } else { CuResult::SUCCESS }
}

unsafe extern "C" fn event_call(_event: CuEvent) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn event_destroy(_event: CuEvent) -> CuResult {
    destroyed()
}

unsafe extern "C" fn elapsed(ms: *mut f32, start: CuEvent, end: CuEvent) -> CuResult {
    // SAFETY: the contract of cuEventElapsedTime.
    unsafe { ms.write(if start < end { 2.5 } else { -2.5 }) };
    CuResult::SUCCESS
}

const CONTEXTS: DriverApi = DriverApi {
    primary_context_retain: Some(retain),
    context_get: Some(current),
    ..DriverApi::NONE
};

fn comm(driver: DriverApi) -> Comm {
    let nccl = NcclApi {
        ncclCommCount: number,
        ncclCommUserRank: number,
        ncclCommCuDevice: number,
        ncclCommAbort: abort,
        ..NcclApi::UNAVAILABLE
    };
    let builder = Backend::builder("stub", MemorySpace::Device).nccl(nccl).driver(driver);
    // SAFETY: the tables keep the contracts as far as these tests call them, and the communicator
    // is whatever the table makes of a pointer it ignores.
    unsafe { Comm::from_raw(builder.build(), core::ptr::null_mut()) }.unwrap()
}

#[test]
fn each_is_made_once_timed_and_destroyed_once() {
    let comm = comm(DriverApi {
        stream_create: Some(stream_create),
        stream_destroy: Some(stream_destroy),
        event_create: Some(event_create),
        event_record: Some(event_record),
        event_synchronize: Some(event_call),
        event_elapsed: Some(elapsed),
        event_destroy: Some(event_destroy),
        ..CONTEXTS
    });
    let stream = OwnedStream::new(&comm).unwrap();
    let (mut start, mut end) = (Event::new(&comm).unwrap(), Event::new(&comm).unwrap());
    assert_eq!(LIVE.load(Ordering::SeqCst), 3);
    start.record(stream.stream()).unwrap();
    end.record(stream.stream()).unwrap();
    assert_eq!(end.elapsed_since(&start).unwrap(), Duration::from_micros(2500));
    // Time does not run backwards.
    assert_eq!(start.elapsed_since(&end).unwrap(), Duration::ZERO);
    let error = end.record(Stream::DEFAULT).unwrap_err();
    assert!(matches!(error, Error::Driver { call: "cuEventRecord", code: 1, .. }), "{error}");
    // They outlive the communicator: they have a device, and keep none.
    drop(comm);
    drop((stream, start, end));
    assert_eq!((LIVE.load(Ordering::SeqCst), DESTROYED.load(Ordering::SeqCst)), (0, 3));
}

#[test]
fn a_driver_without_them_is_named() {
    let comm = comm(CONTEXTS);
    for (error, symbol) in [
        (OwnedStream::new(&comm).map(drop).unwrap_err(), "cuStreamCreate"),
        (Event::new(&comm).map(drop).unwrap_err(), "cuEventCreate"),
    ] {
        assert!(
            matches!(error, Error::Unsupported { feature, .. } if feature == symbol),
            "{error}"
        );
    }
}
