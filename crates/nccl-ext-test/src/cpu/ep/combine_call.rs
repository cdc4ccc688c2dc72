//! Combine calls.

use std::ptr::null;

use nccl_ep_sys::{
    VersionedStruct, ncclEpCombineConfig_t, ncclEpCombineInputs_t, ncclEpCombineOutputs_t,
};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Element, bf16};

use super::{TestHandle, TestTensor, api, descriptor_or_null, register_window};
use crate::cpu::{done, stream};

/// The tensors of a combine of tokens of type `T` into those of type `Out`; what is `None` is passed
/// as NULL.
#[derive(Debug)]
pub struct CombineCall<T = bf16, Out = T> {
    pub tokens: Option<TestTensor<T>>,
    pub in_weights: Option<TestTensor<f32>>,
    pub out: Option<TestTensor<Out>>,
    pub weights: Option<TestTensor<f32>>,
    pub config: Option<ncclEpCombineConfig_t>,
}

impl<T: Element, Out: Element> CombineCall<T, Out> {
    /// A combine of tokens alone.
    pub fn new(tokens: TestTensor<T>, out: TestTensor<Out>) -> Self {
        let (tokens, out) = (Some(tokens), Some(out));
        Self { tokens, in_weights: None, out, weights: None, config: None }
    }

    pub fn call(&mut self, handle: &TestHandle) -> ncclResult_t {
        let mut inputs = ncclEpCombineInputs_t::init();
        inputs.tokens = descriptor_or_null(&mut self.tokens);
        inputs.topk_weights = descriptor_or_null(&mut self.in_weights);
        let mut outputs = ncclEpCombineOutputs_t::init();
        outputs.tokens = descriptor_or_null(&mut self.out);
        outputs.topk_weights = descriptor_or_null(&mut self.weights);
        let config = self.config.as_ref().map_or(null(), |config| &raw const *config);
        // SAFETY: the handle is live; the structs are this frame's, and their tensors are null or
        // `self`'s.
        done(unsafe { (api().ncclEpCombine)(handle.raw, &inputs, &outputs, config, stream()) })
    }

    /// Leaves the receiving half to `ncclEpComplete`.
    pub fn staged(mut self) -> Self {
        self.config.get_or_insert_with(VersionedStruct::init).send_only = 1;
        self
    }

    /// Registers the input of the tokens as a window.
    pub fn with_input_window(mut self, comm: &Comm) -> Self {
        self.tokens = self.tokens.map(|tensor| register_window(comm, tensor));
        self
    }
}
