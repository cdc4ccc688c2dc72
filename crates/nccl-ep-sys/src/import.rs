//! Importing a prepared handle: a table of our own.
//!
//! libnccl_ep 0.2.0 has no such function. Newer ones will; until codegen has seen their header no
//! symbol is guessed, so the table comes from the CPU backend alone.

use core::ffi::{c_int, c_uint};

use nccl_ext_core::backend::ExtensionTable;
use nccl_ext_core::raw::{ncclDataType_t, ncclResult_t};

use crate::bindings::{
    ncclEpGroup_t, ncclEpHandle_t, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpTensor_t,
};

/// Functions that this workspace adds to libnccl_ep's.
#[derive(Clone, Copy)]
#[allow(non_snake_case)]
pub struct ImportApi {
    /// Binds handle memory that an update has prepared, or a copy of it, to a new handle of a
    /// group of the same shape. High throughput only; local.
    ///
    /// `num_tokens`, `num_topk` and `topk_idx_datatype` are those of the update. The memory is read in the
    /// call, so whatever streams still write there is waited for before.
    pub ncclExtImportHandle: unsafe extern "C" fn(
        handle: *mut ncclEpHandle_t,
        ep_group: ncclEpGroup_t,
        layout: ncclEpLayout_t,
        config: *const ncclEpHandleConfig_t,
        num_tokens: c_uint,
        num_topk: c_int,
        topk_idx_datatype: ncclDataType_t,
        handle_mem: *const ncclEpTensor_t,
    ) -> ncclResult_t,
}

impl ExtensionTable for ImportApi {
    const LIBRARY: &'static str = "EP handle import";
}
