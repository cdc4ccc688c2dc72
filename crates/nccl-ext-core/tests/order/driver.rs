//! A driver that writes down its calls, and whose work is done when a test says so.
//!
//! Streams and events have letters and numbers: `s1`, `e2`; `s0` is the default stream.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::{Cell, RefCell};

use nccl_ext_core::driver::{CuContext, CuDevice, CuEvent, CuResult, DriverApi};
use nccl_ext_core::raw::{NcclApi, cudaStream_t, ncclComm_t, ncclResult_t};
use nccl_ext_core::{Backend, Comm, Device, MemorySpace};

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static DONE: Cell<bool> = const { Cell::new(true) };
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
    static ASYNC: Cell<u32> = const { Cell::new(0) };
    static NEXT: Cell<usize> = const { Cell::new(1) };
}

fn note(call: String) -> CuResult {
    CALLS.with_borrow_mut(|calls| calls.push(call));
    CuResult::SUCCESS
}

/// The calls of this thread since the last look.
pub(crate) fn calls() -> Vec<String> {
    CALLS.take()
}

/// Whether work is done from now on, for this thread.
pub(crate) fn set_done(done: bool) {
    DONE.set(done);
}

/// Whether streams of other owners are being captured.
pub(crate) fn set_capturing(capturing: bool) {
    CAPTURING.set(capturing);
}

/// The asynchronous error of communicators.
pub(crate) fn set_async_error(code: u32) {
    ASYNC.set(code);
}

fn number(handle: *mut c_void) -> usize {
    handle.addr()
}

fn make(to: *mut *mut c_void, letter: char) -> CuResult {
    let next = NEXT.get();
    NEXT.set(next + 1);
    // Above the two special streams.
    // SAFETY: the caller's out pointer.
    unsafe { to.write(core::ptr::without_provenance_mut(next + 100)) };
    note(format!("create {letter}{}", next + 100))
}

unsafe extern "C" fn retain(context: *mut CuContext, _: CuDevice) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { context.write(core::ptr::null_mut()) };
    CuResult::SUCCESS
}

unsafe extern "C" fn current(context: *mut CuContext) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { context.write(core::ptr::null_mut()) };
    CuResult::SUCCESS
}

unsafe extern "C" fn context_synchronize() -> CuResult {
    note("BLOCK device".into())
}

unsafe extern "C" fn stream_create(stream: *mut cudaStream_t, _: c_uint) -> CuResult {
    make(stream.cast(), 's')
}

unsafe extern "C" fn stream_destroy(stream: cudaStream_t) -> CuResult {
    note(format!("destroy s{}", number(stream.cast())))
}

unsafe extern "C" fn stream_synchronize(stream: cudaStream_t) -> CuResult {
    note(format!("BLOCK s{}", number(stream.cast())))
}

unsafe extern "C" fn stream_query(_: cudaStream_t) -> CuResult {
    if DONE.get() { CuResult::SUCCESS } else { CuResult::NOT_READY }
}

unsafe extern "C" fn stream_is_capturing(_: cudaStream_t, out: *mut c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { out.write(CAPTURING.get().into()) };
    CuResult::SUCCESS
}

unsafe extern "C" fn wait_event(stream: cudaStream_t, event: CuEvent, flags: c_uint) -> CuResult {
    assert_eq!(flags, 0);
    note(format!("s{} waits e{}", number(stream.cast()), number(event)))
}

unsafe extern "C" fn event_create(event: *mut CuEvent, flags: c_uint) -> CuResult {
    assert_eq!(flags, 2, "no time is taken");
    make(event, 'e')
}

unsafe extern "C" fn event_record(event: CuEvent, stream: cudaStream_t) -> CuResult {
    note(format!("record e{} s{}", number(event), number(stream.cast())))
}

unsafe extern "C" fn event_synchronize(event: CuEvent) -> CuResult {
    note(format!("BLOCK e{}", number(event)))
}

unsafe extern "C" fn event_query(event: CuEvent) -> CuResult {
    if DONE.get() {
        return note(format!("done e{}", number(event)));
    }
    CuResult::NOT_READY
}

unsafe extern "C" fn event_destroy(event: CuEvent) -> CuResult {
    note(format!("destroy e{}", number(event)))
}

unsafe extern "C" fn copy_in(_: u64, _: *const c_void, _: usize, s: cudaStream_t) -> CuResult {
    note(format!("copy s{}", number(s.cast())))
}

unsafe extern "C" fn copy_out(_: *mut c_void, _: u64, _: usize, s: cudaStream_t) -> CuResult {
    note(format!("copy s{}", number(s.cast())))
}

unsafe extern "C" fn copy_on(_: u64, _: u64, _: usize, s: cudaStream_t) -> CuResult {
    note(format!("copy s{}", number(s.cast())))
}

unsafe extern "C" fn fill(_: u64, _: u8, _: usize, _: cudaStream_t) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn host_alloc(out: *mut *mut c_void, bytes: usize, _: c_uint) -> CuResult {
    if bytes > 1 << 40 {
        return CuResult(2);
    }
    let memory: &mut [u64] = Box::leak(vec![0; bytes.div_ceil(8)].into_boxed_slice());
    // SAFETY: the caller's out pointer.
    unsafe { out.write(memory.as_mut_ptr().cast()) };
    CuResult::SUCCESS
}

unsafe extern "C" fn host_free(_: *mut c_void) -> CuResult {
    note("free host".into())
}

unsafe extern "C" fn one(_: ncclComm_t, to: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { to.write(1) };
    ncclResult_t(0)
}

unsafe extern "C" fn zero(_: ncclComm_t, to: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { to.write(0) };
    ncclResult_t(0)
}

unsafe extern "C" fn abort(_: ncclComm_t) -> ncclResult_t {
    note("ncclCommAbort".into());
    ncclResult_t(0)
}

unsafe extern "C" fn async_error(_: ncclComm_t, out: *mut ncclResult_t) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { out.write(ncclResult_t(ASYNC.get())) };
    ncclResult_t(0)
}

unsafe extern "C" fn last_error(_: ncclComm_t) -> *const core::ffi::c_char {
    c"a peer is gone".as_ptr()
}

unsafe extern "C" fn mem_alloc(out: *mut *mut c_void, bytes: usize) -> ncclResult_t {
    let memory: &mut [u64] = Box::leak(vec![0; bytes.div_ceil(8)].into_boxed_slice());
    // SAFETY: the caller's out pointer.
    unsafe { out.write(memory.as_mut_ptr().cast()) };
    ncclResult_t(0)
}

unsafe extern "C" fn mem_free(_: *mut c_void) -> ncclResult_t {
    note("free".into());
    ncclResult_t(0)
}

unsafe extern "C" fn all_reduce(
    _: *const c_void,
    _: *mut c_void,
    _: usize,
    _: nccl_ext_core::raw::ncclDataType_t,
    _: nccl_ext_core::raw::ncclRedOp_t,
    _: ncclComm_t,
    s: cudaStream_t,
) -> ncclResult_t {
    note(format!("all-reduce s{}", number(s.cast())));
    ncclResult_t(0)
}

/// The only rank of a communicator of a backend of its own, on device 0.
pub(crate) fn comm() -> Comm {
    let nccl = NcclApi {
        ncclCommCount: one,
        ncclCommUserRank: zero,
        ncclCommCuDevice: zero,
        ncclCommAbort: abort,
        ncclCommGetAsyncError: async_error,
        ncclGetLastError: last_error,
        ncclAllReduce: all_reduce,
        ncclMemAlloc: mem_alloc,
        ncclMemFree: mem_free,
        ..NcclApi::UNAVAILABLE
    };
    let driver = DriverApi {
        primary_context_retain: Some(retain),
        context_get: Some(current),
        context_synchronize: Some(context_synchronize),
        stream_create: Some(stream_create),
        stream_destroy: Some(stream_destroy),
        stream_synchronize: Some(stream_synchronize),
        stream_query: Some(stream_query),
        stream_is_capturing: Some(stream_is_capturing),
        stream_wait_event: Some(wait_event),
        event_create: Some(event_create),
        event_record: Some(event_record),
        event_synchronize: Some(event_synchronize),
        event_query: Some(event_query),
        event_destroy: Some(event_destroy),
        copy_to_device: Some(copy_in),
        copy_to_host: Some(copy_out),
        copy_on_device: Some(copy_on),
        fill: Some(fill),
        host_alloc: Some(host_alloc),
        host_free: Some(host_free),
        ..DriverApi::NONE
    };
    let builder = Backend::builder("stub", MemorySpace::Device).nccl(nccl).driver(driver);
    // SAFETY: the tables keep the contracts as far as these tests call them, and the communicator
    // is whatever the table makes of a pointer that it ignores.
    unsafe { Comm::from_raw(builder.build(), core::ptr::null_mut()) }.unwrap()
}

pub(crate) fn device() -> Device {
    comm_without_end().device()
}

/// One whose end no test looks at.
pub(crate) fn comm_without_end() -> &'static Comm {
    let comm = Box::leak(Box::new(comm()));
    calls();
    comm
}
