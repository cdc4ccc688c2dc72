//! A backend made of stub tables: every call succeeds, does nothing and is counted for the calling
//! thread. With it a test sees what reaches the native library, and what does not.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use core::ffi::{c_int, c_void};
use std::cell::RefCell;

use nccl_ep::{Comm, MemorySpace, UniqueId};
use nccl_ep_sys::*;
use nccl_ext_core::Backend;
use nccl_ext_core::backend::BackendBuilder;
use nccl_ext_core::driver::{CuContext, CuResult, DriverApi};
use nccl_ext_core::raw::*;

thread_local! {
    static CALLS: RefCell<Vec<&'static str>> = RefCell::new(Vec::with_capacity(1024));
}

fn called(name: &'static str) -> ncclResult_t {
    CALLS.with_borrow_mut(|calls| calls.push(name));
    ncclResult_t::ncclSuccess
}

/// The calls of this thread since the last look, communicator bookkeeping aside.
pub fn take_calls() -> Vec<&'static str> {
    CALLS.with_borrow_mut(|calls| {
        let taken = calls.clone();
        calls.clear(); // keeps the capacity: pushing must not allocate
        taken
    })
}

/// A communicator handle is a number: its ranks and its rank.
const RANKS: usize = 0x1000;

unsafe extern "C" fn init_rank(
    comm: *mut ncclComm_t,
    ranks: c_int,
    _: ncclUniqueId,
    rank: c_int,
) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *comm = (ranks as usize * RANKS + rank as usize) as ncclComm_t };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn unique_id(_: *mut ncclUniqueId) -> ncclResult_t {
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn count(comm: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = (comm as usize / RANKS) as c_int };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn rank(comm: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = (comm as usize % RANKS) as c_int };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn device(_: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 0 };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn finalize(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommFinalize")
}

unsafe extern "C" fn destroy(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommDestroy")
}

unsafe extern "C" fn abort(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommAbort")
}

/// As if every rank had sent the same.
unsafe extern "C" fn all_gather(
    send: *const c_void,
    recv: *mut c_void,
    elements: usize,
    _: ncclDataType_t,
    comm: ncclComm_t,
    _: cudaStream_t,
) -> ncclResult_t {
    let bytes = elements * 8; // the crate gathers u64 only
    for i in 0..comm as usize / RANKS {
        // SAFETY: the caller's buffers hold `elements` each, times the ranks.
        unsafe { recv.cast::<u8>().add(i * bytes).copy_from(send.cast(), bytes) };
    }
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn mem_alloc(out: *mut *mut c_void, bytes: usize) -> ncclResult_t {
    let memory = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
    // SAFETY: the caller's out pointer.
    unsafe { *out = Box::into_raw(memory).cast() };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn mem_free(_: *mut c_void) -> ncclResult_t {
    ncclResult_t::ncclSuccess // leaks: the stub does not know the size
}

unsafe extern "C" fn attribute(out: *mut c_int, _: c_int, _: c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 132 };
    CuResult::SUCCESS
}

/// The stub knows no pointer, as the driver knows no ordinary host memory.
unsafe extern "C" fn pointer_attribute(_: *mut c_void, _: c_int, _: u64) -> CuResult {
    CuResult::INVALID_VALUE
}

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

unsafe extern "C" fn synchronize(_: cudaStream_t) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn context_synchronize() -> CuResult {
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

unsafe extern "C" fn version(out: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 200 };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn create_group(
    out: *mut ncclEpGroup_t,
    _: ncclComm_t,
    _: *const ncclEpGroupConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = core::ptr::without_provenance_mut(16) };
    called("ncclEpCreateGroup")
}

unsafe extern "C" fn group_destroy(_: ncclEpGroup_t) -> ncclResult_t {
    called("ncclEpGroupDestroy")
}

unsafe extern "C" fn mem_size(
    _: ncclEpGroup_t,
    _: ncclEpLayout_t,
    _: *const ncclEpHandleConfig_t,
    out: *mut usize,
    _: c_int,
) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 4096 };
    called("ncclEpHandleMemSize")
}

unsafe extern "C" fn init_handle(
    out: *mut ncclEpHandle_t,
    _: ncclEpGroup_t,
    _: ncclEpLayout_t,
    _: *const ncclEpHandleConfig_t,
    _: c_int,
    _: *const ncclEpTensor_t,
) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = core::ptr::without_provenance_mut(16) };
    called("ncclEpInitHandle")
}

unsafe extern "C" fn create_handle(
    out: *mut ncclEpHandle_t,
    _: ncclEpGroup_t,
    _: ncclEpLayout_t,
    _: *const ncclEpTensor_t,
    _: *const ncclEpLayoutInfo_t,
    _: *const ncclEpHandleConfig_t,
    _: cudaStream_t,
) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = core::ptr::without_provenance_mut(16) };
    called("ncclEpCreateHandle")
}

unsafe extern "C" fn handle_destroy(_: ncclEpHandle_t) -> ncclResult_t {
    called("ncclEpHandleDestroy")
}

unsafe extern "C" fn update_handle(
    _: ncclEpHandle_t,
    _: *const ncclEpTensor_t,
    _: *const ncclEpLayoutInfo_t,
    _: cudaStream_t,
) -> ncclResult_t {
    called("ncclEpUpdateHandle")
}

unsafe extern "C" fn dispatch(
    _: ncclEpHandle_t,
    _: *const ncclEpDispatchInputs_t,
    _: *const ncclEpDispatchOutputs_t,
    _: *const ncclEpLayoutInfo_t,
    _: *const ncclEpDispatchConfig_t,
    _: cudaStream_t,
) -> ncclResult_t {
    called("ncclEpDispatch")
}

unsafe extern "C" fn combine(
    _: ncclEpHandle_t,
    _: *const ncclEpCombineInputs_t,
    _: *const ncclEpCombineOutputs_t,
    _: *const ncclEpCombineConfig_t,
    _: cudaStream_t,
) -> ncclResult_t {
    called("ncclEpCombine")
}

/// A backend of stubs whose tensors live in `memory`.
pub fn backend(memory: MemorySpace) -> Backend {
    backend_with(memory, |_| {})
}

/// As [`backend`], with some of its functions replaced.
pub fn backend_with(memory: MemorySpace, edit: impl Fn(&mut EpApi)) -> Backend {
    // SAFETY: the stubs keep to the contracts, as far as they do anything.
    unsafe { builder(memory, edit).build() }
}

/// As [`backend_with`], not finished.
pub fn builder(memory: MemorySpace, edit: impl Fn(&mut EpApi)) -> BackendBuilder {
    let nccl = NcclApi {
        ncclGetUniqueId: unique_id,
        ncclCommInitRank: init_rank,
        ncclCommCount: count,
        ncclCommUserRank: rank,
        ncclCommCuDevice: device,
        ncclCommFinalize: finalize,
        ncclCommDestroy: destroy,
        ncclCommAbort: abort,
        ncclAllGather: all_gather,
        ncclMemAlloc: mem_alloc,
        ncclMemFree: mem_free,
        ..NcclApi::UNAVAILABLE
    };
    let driver = DriverApi {
        device_attribute: Some(attribute),
        pointer_attribute: Some(pointer_attribute),
        context_get: Some(context_get),
        context_set: Some(context_set),
        primary_context_retain: Some(context_retain),
        context_synchronize: Some(context_synchronize),
        stream_synchronize: Some(synchronize),
        copy_to_device: Some(copy_in),
        copy_to_host: Some(copy_out),
        fill: Some(fill),
        ..DriverApi::NONE
    };
    let mut table = EpApi {
        ncclEpGetVersion: version,
        ncclEpCreateGroup: create_group,
        ncclEpGroupDestroy: group_destroy,
        ncclEpHandleMemSize: mem_size,
        ncclEpInitHandle: init_handle,
        ncclEpCreateHandle: create_handle,
        ncclEpHandleDestroy: handle_destroy,
        ncclEpUpdateHandle: update_handle,
        ncclEpDispatch: dispatch,
        ncclEpCombine: combine,
        ..EpApi::UNAVAILABLE
    };
    edit(&mut table);
    let builder = Backend::builder("stub", memory).nccl(nccl).driver(driver);
    // SAFETY: the stub's version can be asked for.
    unsafe { from_table(builder, table).unwrap() }
}

/// Rank 0 of `ranks` on a fresh stub backend with host tensors.
pub fn comm(ranks: usize) -> Comm {
    comm_on(backend(MemorySpace::Host), ranks)
}

/// Rank 0 of `ranks`.
pub fn comm_on(backend: Backend, ranks: usize) -> Comm {
    let id = UniqueId::new(backend).unwrap();
    let comm = Comm::init_rank(backend, ranks, &id, 0).unwrap();
    take_calls();
    comm
}
