//! libnccl_ep's table.
//!
//! Checks follow the order and the codes of the vendor's library; a failure that kills the process
//! or worse there is an error here, with its [`FailureClass`](crate::FailureClass) on the side.
//!
//! # Rooms
//!
//! Arrows go one way; `cargo xtask modules` checks it. Bottom to top, each may name what stands
//! before it:
//!
//! ```text
//! structs  allocator  environment  slots  refusals    what the caller passes, and small words
//! tensor                  descriptors, tables of expert ids
//! settings                of groups and handles, with limits and sizes
//! arguments  numerics     what both algorithms check alike; the sums of combine
//! staging  mask           what low-latency ranks show each other, and keep for who comes late
//! group                   what all its handles share; creation compares the ranks' settings
//! ht  ll                  update, dispatch, combine: in each `check` -> `run` <- the work
//! handle                  what a handle keeps; creation, memory
//! call                    one file per C function
//! mod.rs                  the table
//! ```
//!
//! Of each operation `check` looks at the arguments on the calling thread and gives a plain struct,
//! `run` gives the rest to the stream, where the ranks meet, and the file beside them (`push`, `pull`,
//! `sum`) moves the data. So a handle has two states: what a call knows when it returns, which the
//! next call is checked against, and what the work learns when it runs. The work says which bytes of
//! the caller's it uses (`queue::read`, `queue::write`), and that it uses what the operations of a
//! group share (`View::submit_operation`).
//! Ranks meet in `world` only, except those of a group with masks, which meet in `mask::mailbox`.

mod allocator;
mod arguments;
mod call;
mod environment;
mod group;
mod handle;
mod ht;
mod ll;
mod mask;
mod numerics;
mod refusals;
mod settings;
mod slots;
mod staging;
mod structs;
mod tensor;

use core::ffi::{c_int, c_uint};

use nccl_ep_sys::{
    EpApi, ImportApi, NCCL_EP_VERSION_CODE, ncclEpCombineConfig_t, ncclEpCombineInputs_t,
    ncclEpCombineOutputs_t, ncclEpCompleteConfig_t, ncclEpDispatchConfig_t, ncclEpDispatchInputs_t,
    ncclEpDispatchOutputs_t, ncclEpGroup_t, ncclEpGroupConfig_t, ncclEpHandle_t,
    ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpLayoutInfo_t, ncclEpTensor_t,
    ncclEpTensorAllocConfig_t,
};
use nccl_ext_core::raw::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclResult_t};

use self::call::UpdateFacts;
use crate::entry::{entry, store};

/// The version whose behaviour this is.
pub(crate) const VERSION: c_int = NCCL_EP_VERSION_CODE as c_int;

pub(crate) const TABLE: EpApi = EpApi {
    ncclEpGetVersion: get_version,
    ncclEpTensorAlloc: tensor_alloc,
    ncclEpTensorDestroy: tensor_destroy,
    ncclEpCreateGroup: create_group,
    ncclEpGroupDestroy: group_destroy,
    ncclEpHandleMemSize: handle_mem_size,
    ncclEpInitHandle: init_handle,
    ncclEpUpdateHandle: update_handle,
    ncclEpCreateHandle: create_handle,
    ncclEpHandleDestroy: handle_destroy,
    ncclEpDispatch: dispatch,
    ncclEpCombine: combine,
    ncclEpComplete: complete,
    ncclEpMaskQuery: mask_query,
    ncclEpMaskUpdate: mask_update,
    ncclEpMaskClean: mask_clean,
    ncclEpGetAsyncError: get_async_error,
    ncclEpErrorClear: error_clear,
};

pub(crate) const IMPORT: ImportApi = ImportApi { ncclExtImportHandle: import_handle };

unsafe extern "C" fn get_version(version: *mut c_int) -> ncclResult_t {
    entry("ncclEpGetVersion", |_| {
        // SAFETY: the C contract: NULL or writable.
        unsafe { store(version, "version", VERSION) }
    })
}

unsafe extern "C" fn tensor_alloc(
    tensor: *mut *mut ncclEpTensor_t,
    ndim: c_uint,
    datatype: ncclDataType_t,
    sizes: *const usize,
    config: *const ncclEpTensorAllocConfig_t,
) -> ncclResult_t {
    entry("ncclEpTensorAlloc", |_| {
        // SAFETY: the C contract.
        unsafe { tensor::alloc(tensor, ndim, datatype, sizes, config) }
    })
}

unsafe extern "C" fn tensor_destroy(tensor: *mut ncclEpTensor_t) -> ncclResult_t {
    entry("ncclEpTensorDestroy", |_| {
        // SAFETY: the C contract.
        unsafe { tensor::destroy(tensor) }
    })
}

unsafe extern "C" fn create_group(
    ep_group: *mut ncclEpGroup_t,
    comm: ncclComm_t,
    config: *const ncclEpGroupConfig_t,
) -> ncclResult_t {
    entry("ncclEpCreateGroup", |scope| {
        // SAFETY: the C contract.
        unsafe { group::create(scope, ep_group, comm, config) }
    })
}

unsafe extern "C" fn group_destroy(ep_group: ncclEpGroup_t) -> ncclResult_t {
    entry("ncclEpGroupDestroy", |scope| {
        // SAFETY: the C contract.
        unsafe { group::destroy(scope, ep_group) }
    })
}

unsafe extern "C" fn handle_mem_size(
    ep_group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    size_out: *mut usize,
    num_topk: c_int,
) -> ncclResult_t {
    entry("ncclEpHandleMemSize", |_| {
        // SAFETY: the C contract.
        unsafe { handle::memory_size(ep_group, layout, config, size_out, num_topk) }
    })
}

unsafe extern "C" fn init_handle(
    handle: *mut ncclEpHandle_t,
    ep_group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    num_topk: c_int,
    handle_mem: *const ncclEpTensor_t,
) -> ncclResult_t {
    entry("ncclEpInitHandle", |scope| {
        // SAFETY: the C contract.
        unsafe { handle::init(scope, handle, ep_group, layout, config, num_topk, handle_mem) }
    })
}

unsafe extern "C" fn update_handle(
    handle: ncclEpHandle_t,
    topk_idx: *const ncclEpTensor_t,
    layout_info: *const ncclEpLayoutInfo_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclEpUpdateHandle", |scope| {
        // SAFETY: the C contract.
        unsafe { call::update(scope, handle, topk_idx, layout_info, stream) }
    })
}

unsafe extern "C" fn create_handle(
    handle: *mut ncclEpHandle_t,
    ep_group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    topk_idx: *const ncclEpTensor_t,
    layout_info: *const ncclEpLayoutInfo_t,
    config: *const ncclEpHandleConfig_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclEpCreateHandle", |scope| {
        // SAFETY: the C contract.
        unsafe {
            call::create(scope, handle, ep_group, layout, topk_idx, layout_info, config, stream)
        }
    })
}

unsafe extern "C" fn handle_destroy(handle: ncclEpHandle_t) -> ncclResult_t {
    entry("ncclEpHandleDestroy", |_| {
        // SAFETY: the C contract.
        unsafe { handle::destroy(handle) }
    })
}

unsafe extern "C" fn dispatch(
    handle: ncclEpHandle_t,
    inputs: *const ncclEpDispatchInputs_t,
    outputs: *const ncclEpDispatchOutputs_t,
    layout_info: *const ncclEpLayoutInfo_t,
    config: *const ncclEpDispatchConfig_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclEpDispatch", |scope| {
        // SAFETY: the C contract.
        unsafe { call::dispatch(scope, handle, inputs, outputs, layout_info, config, stream) }
    })
}

unsafe extern "C" fn combine(
    handle: ncclEpHandle_t,
    inputs: *const ncclEpCombineInputs_t,
    outputs: *const ncclEpCombineOutputs_t,
    config: *const ncclEpCombineConfig_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclEpCombine", |scope| {
        // SAFETY: the C contract.
        unsafe { call::combine(scope, handle, inputs, outputs, config, stream) }
    })
}

unsafe extern "C" fn complete(
    handle: ncclEpHandle_t,
    config: *const ncclEpCompleteConfig_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclEpComplete", |scope| {
        // SAFETY: the C contract.
        unsafe { call::complete(scope, handle, config) }
    })
}

unsafe extern "C" fn mask_query(
    ep_group: ncclEpGroup_t,
    mask_status: *mut c_int,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclEpMaskQuery", |_| {
        // SAFETY: the C contract.
        unsafe { call::query(ep_group, mask_status, stream) }
    })
}

unsafe extern "C" fn mask_update(
    ep_group: ncclEpGroup_t,
    mask: *const c_int,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclEpMaskUpdate", |_| {
        // SAFETY: the C contract.
        unsafe { call::update_mask(ep_group, mask, stream) }
    })
}

unsafe extern "C" fn mask_clean(ep_group: ncclEpGroup_t, stream: cudaStream_t) -> ncclResult_t {
    entry("ncclEpMaskClean", |scope| {
        // SAFETY: the C contract.
        unsafe { call::clean(scope, ep_group, stream) }
    })
}

unsafe extern "C" fn get_async_error(
    ep_group: ncclEpGroup_t,
    error_out: *mut c_int,
) -> ncclResult_t {
    entry("ncclEpGetAsyncError", |_| {
        // SAFETY: the C contract.
        unsafe { call::async_error(ep_group, error_out) }
    })
}

unsafe extern "C" fn error_clear(ep_group: ncclEpGroup_t) -> ncclResult_t {
    entry("ncclEpErrorClear", |_| {
        // SAFETY: the C contract.
        unsafe { call::clear_error(ep_group) }
    })
}

unsafe extern "C" fn import_handle(
    handle: *mut ncclEpHandle_t,
    ep_group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    num_tokens: c_uint,
    num_topk: c_int,
    topk_idx_datatype: ncclDataType_t,
    handle_mem: *const ncclEpTensor_t,
) -> ncclResult_t {
    entry("ncclExtImportHandle", |scope| {
        let tokens = num_tokens as usize;
        let update = UpdateFacts { tokens, topk: num_topk, id_type: topk_idx_datatype };
        // SAFETY: the C contract: as `ncclEpInitHandle`.
        unsafe { call::import(scope, handle, ep_group, layout, config, &update, handle_mem) }
    })
}
