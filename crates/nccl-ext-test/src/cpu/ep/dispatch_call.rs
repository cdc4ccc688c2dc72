//! Dispatch calls.

use std::ptr::null;

use nccl_ep_sys::{
    VersionedStruct, ncclEpDispatchConfig_t, ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t,
    ncclEpExpertIdKind_t, ncclEpLayoutInfo_t,
};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Element, bf16};

use super::{TestHandle, TestTensor, api, descriptor_or_null, register_window};
use crate::cpu::{done, stream};

/// The tensors of a dispatch of tokens of type `T`; what is `None` is passed as NULL.
#[derive(Debug)]
pub struct DispatchCall<T = bf16> {
    pub tokens: Option<TestTensor<T>>,
    pub weights: Option<TestTensor<f32>>,
    pub scales: Option<TestTensor<u8>>,
    pub out_tokens: Option<TestTensor<T>>,
    pub out_weights: Option<TestTensor<f32>>,
    pub out_scales: Option<TestTensor<u8>>,
    pub out_ids: Option<TestTensor<i64>>,
    /// In place of `out_ids`.
    pub out_ids32: Option<TestTensor<i32>>,
    pub counters: Option<TestTensor<i32>>,
    pub src_counters: Option<TestTensor<i32>>,
    pub id_kind: ncclEpExpertIdKind_t,
    /// Passes NULL for the layout info.
    pub no_info: bool,
    pub config: Option<ncclEpDispatchConfig_t>,
}

impl<T> Default for DispatchCall<T> {
    fn default() -> Self {
        Self {
            tokens: None,
            weights: None,
            scales: None,
            out_tokens: None,
            out_weights: None,
            out_scales: None,
            out_ids: None,
            out_ids32: None,
            counters: None,
            src_counters: None,
            id_kind: ncclEpExpertIdKind_t::NCCL_EP_EXPERT_ID_AUTO,
            no_info: false,
            config: None,
        }
    }
}

impl<T: Element> DispatchCall<T> {
    pub fn call(&mut self, handle: &TestHandle) -> ncclResult_t {
        let mut inputs = ncclEpDispatchInputs_t::init();
        inputs.tokens = descriptor_or_null(&mut self.tokens);
        inputs.topk_weights = descriptor_or_null(&mut self.weights);
        inputs.scales = descriptor_or_null(&mut self.scales);
        let mut outputs = ncclEpDispatchOutputs_t::init();
        outputs.tokens = descriptor_or_null(&mut self.out_tokens);
        outputs.topk_weights = descriptor_or_null(&mut self.out_weights);
        outputs.scales = descriptor_or_null(&mut self.out_scales);
        outputs.topk_idx = match self.out_ids32 {
            Some(_) => descriptor_or_null(&mut self.out_ids32),
            None => descriptor_or_null(&mut self.out_ids),
        };
        let mut info = ncclEpLayoutInfo_t::init();
        info.expert_counters = descriptor_or_null(&mut self.counters);
        info.src_rank_counters = descriptor_or_null(&mut self.src_counters);
        info.recv_topk_idx_kind = self.id_kind;
        let info = if self.no_info { null() } else { &raw const info };
        let config = self.config.as_ref().map_or(null(), |config| &raw const *config);
        let dispatch = api().ncclEpDispatch;
        // SAFETY: the handle is live; the structs are this frame's, and their tensors are null or
        // `self`'s.
        done(unsafe { dispatch(handle.raw, &inputs, &outputs, info, config, stream()) })
    }

    /// Asks for global expert ids.
    pub fn with_global_ids(mut self) -> Self {
        self.id_kind = ncclEpExpertIdKind_t::NCCL_EP_EXPERT_ID_GLOBAL;
        self
    }

    /// Leaves the receiving half to `ncclEpComplete`.
    pub fn staged(mut self) -> Self {
        self.config.get_or_insert_with(VersionedStruct::init).send_only = 1;
        self
    }

    /// Registers the output of the tokens as a window.
    pub fn with_output_window(mut self, comm: &Comm) -> Self {
        self.out_tokens = self.out_tokens.map(|tensor| register_window(comm, tensor));
        self
    }
}
