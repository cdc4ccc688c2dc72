//! The raw calls, so that a test can pass what a caller must not.
//!
//! Pointers that are not null are of objects of the calling test, which outlive the call; groups
//! and handles are live, be it half built. Every call takes the null stream.

use std::ffi::c_int;

use nccl_ext_core::raw::{ncclComm_t, ncclDataType_t};

use super::*;

pub(crate) fn version(out: *mut c_int) -> ncclResult_t {
    // SAFETY: `out` can be written or is null, which is refused.
    unsafe { (api().ncclEpGetVersion)(out) }
}

pub(crate) fn alloc(
    out: *mut *mut ncclEpTensor_t,
    ndim: u32,
    data_type: ncclDataType_t,
    sizes: *const usize,
    config: *const ncclEpTensorAllocConfig_t,
) -> ncclResult_t {
    // SAFETY: `sizes` has `ndim` elements or is null, which is refused as a null `out` is; `config`
    // is null or begins with its true size, or one that is refused.
    unsafe { (api().ncclEpTensorAlloc)(out, ndim, data_type, sizes, config) }
}

/// Of any pointer: what is not allocated, or no longer, is refused unread.
pub(crate) fn destroy_tensor(tensor: *mut ncclEpTensor_t) -> ncclResult_t {
    // SAFETY: the backend looks the address up before it reads, and no one else uses the tensor.
    unsafe { (api().ncclEpTensorDestroy)(tensor) }
}

pub(crate) fn create_group(
    out: *mut ncclEpGroup_t,
    comm: ncclComm_t,
    config: *const ncclEpGroupConfig_t,
) -> ncclResult_t {
    // SAFETY: the communicator is live and the rest the test's; what is null is refused, and a
    // configuration of a wrong size or magic is too.
    unsafe { (api().ncclEpCreateGroup)(out, comm, config) }
}

pub(crate) fn destroy_group(group: ncclEpGroup_t) -> ncclResult_t {
    // SAFETY: the group is null or live, and not used again once this succeeds.
    unsafe { (api().ncclEpGroupDestroy)(group) }
}

pub(crate) fn memory_size(
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    out: *mut usize,
    topk: i32,
) -> ncclResult_t {
    // SAFETY: the group is live and `out` can be written, or they are null, which is refused.
    unsafe { (api().ncclEpHandleMemSize)(group, layout, null(), out, topk) }
}

pub(crate) fn create_handle(
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    ids: *const ncclEpTensor_t,
    info: *const ncclEpLayoutInfo_t,
) -> ncclResult_t {
    // SAFETY: the group is live and `out`, the ids and the layout info are the test's.
    unsafe { (api().ncclEpCreateHandle)(out, group, layout, ids, info, null(), null_mut()) }
}

pub(crate) fn destroy_handle(handle: ncclEpHandle_t) -> ncclResult_t {
    // SAFETY: the handle is null or live, be it half built, and not used again.
    unsafe { (api().ncclEpHandleDestroy)(handle) }
}

pub(crate) fn update(handle: ncclEpHandle_t, ids: *const ncclEpTensor_t) -> ncclResult_t {
    // SAFETY: handle and ids live or are null, which is refused; so are ids without data, before
    // any is read.
    unsafe { (api().ncclEpUpdateHandle)(handle, ids, null(), null_mut()) }
}

pub(crate) fn dispatch(
    handle: ncclEpHandle_t,
    inputs: *const ncclEpDispatchInputs_t,
    outputs: *const ncclEpDispatchOutputs_t,
    info: *const ncclEpLayoutInfo_t,
) -> ncclResult_t {
    // SAFETY: the handle is live and the tensors behind the structs are the test's; what is null of
    // them is refused.
    unsafe { (api().ncclEpDispatch)(handle, inputs, outputs, info, null(), null_mut()) }
}

pub(crate) fn combine(
    handle: ncclEpHandle_t,
    inputs: &ncclEpCombineInputs_t,
    outputs: &ncclEpCombineOutputs_t,
) -> ncclResult_t {
    // SAFETY: the handle is live or null, which is refused; the tensors are the test's, and those
    // of a wrong type or extent are refused before their data is used.
    unsafe { (api().ncclEpCombine)(handle, inputs, outputs, null(), null_mut()) }
}

pub(crate) fn complete(
    handle: ncclEpHandle_t,
    config: *const ncclEpCompleteConfig_t,
) -> ncclResult_t {
    // SAFETY: the handle is live or null, which is refused; the configuration is null or the
    // test's, and one of a wrong size is refused.
    unsafe { (api().ncclEpComplete)(handle, config, null_mut()) }
}
