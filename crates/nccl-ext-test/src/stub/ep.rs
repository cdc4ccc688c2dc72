//! libnccl_ep as a stub.

use core::ffi::c_int;

use nccl_ep_sys::*;
use nccl_ext_core::backend::BackendBuilder;
use nccl_ext_core::raw::*;
use nccl_ext_core::{Backend, Comm, MemorySpace};

use super::calls::called;
pub use super::{fail_next, take_calls};

/// A backend of stubs whose tensors live in `memory`.
pub fn backend(memory: MemorySpace) -> Backend {
    backend_with(memory, |_| {})
}

/// As [`backend`], with some of the library's functions replaced.
pub fn backend_with(memory: MemorySpace, edit: impl Fn(&mut EpApi)) -> Backend {
    // SAFETY: the stubs keep to the contracts, as far as they do anything.
    unsafe { builder(memory, edit).build() }
}

/// As [`backend_with`], not finished.
///
/// # Panics
/// If an edited table does not tell its version.
pub fn builder(memory: MemorySpace, edit: impl Fn(&mut EpApi)) -> BackendBuilder {
    let mut table = TABLE;
    edit(&mut table);
    // SAFETY: the stub's version can be asked for.
    unsafe { from_table(super::builder(memory), table).unwrap() }
}

/// Rank 0 of `ranks` on a fresh stub backend with host tensors.
pub fn comm(ranks: usize) -> Comm {
    comm_on(backend(MemorySpace::Host), ranks)
}

/// Rank 0 of `ranks`.
pub fn comm_on(backend: Backend, ranks: usize) -> Comm {
    super::comm_on(backend, ranks, 0)
}

const TABLE: EpApi = EpApi {
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
