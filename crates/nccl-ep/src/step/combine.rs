//! Bringing expert outputs back.

use nccl_ep_sys::{VersionedStruct, ncclEpCombineInputs_t, ncclEpCombineOutputs_t};
use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::{Result, Stream, Use};

use super::stage::Stage;
use crate::args::{CombineInputs, CombineOutputs, use_mut, use_of, view, view_mut};
use crate::config::CombineConfig;
use crate::enums::DispatchQuantizationRecipe;
use crate::handle::Handle;
use crate::rules;
use crate::rules::combine::{CombineFacts, RULES};
use crate::rules::tensor_row::extents::Sizes;
use crate::rules::tensor_row::{Call, Slot};
use crate::rules::tensors::TensorFacts;
use crate::tensor::Descriptor;

pub(super) struct CombineCall<'c> {
    pub(super) handle: &'c Handle,
    pub(super) tokens: usize,
    pub(super) indices: Use<'c>,
    pub(super) step_rows: u64,
    pub(super) inputs: &'c CombineInputs<'c>,
    pub(super) outputs: &'c CombineOutputs<'c>,
    pub(super) config: &'c CombineConfig,
}

impl CombineCall<'_> {
    pub(super) fn check(&self, stream: Stream<'_>) -> Result<()> {
        let Self { handle, inputs, outputs, config, .. } = *self;
        let geometry = &handle.group.geometry;
        let tokens = inputs.tokens.view();
        let in_weights = view(&inputs.topk_weights);
        let sizes = Sizes {
            tokens: self.tokens as u64,
            hidden: tokens.row_width(),
            token_type: tokens.data_type(),
            step_rows: self.step_rows,
            ..Sizes::new(geometry, handle.topk)
        };
        let facts = TensorFacts {
            call: Call::Combine(config.pass_direction),
            mode: handle.mode,
            recipe: DispatchQuantizationRecipe::None,
            sizes: &sizes,
            tensor: &|slot| match slot {
                Slot::InTokens => Some(tokens),
                Slot::InWeights => in_weights,
                Slot::RoutingWeights => view(&inputs.routing_weights),
                Slot::OutTokens => Some(outputs.tokens.view()),
                Slot::OutWeights => view_mut(&outputs.topk_weights),
                _ => None,
            },
        };
        handle.group.check_tensors(&facts, stream)?;
        let (mode, pass) = (handle.mode, config.pass_direction);
        let facts = CombineFacts { geometry, mode, pass, tokens, in_weights };
        rules::check(RULES, |broken| broken(&facts))
    }

    pub(super) fn run<S: Stage>(&self, stream: Stream<'_>, stage: S) -> Result<S::Output> {
        let Self { handle, inputs, outputs, config, .. } = *self;
        let group = &handle.group;
        let mut tensors: [Descriptor; 4] = std::array::from_fn(|_| Descriptor::empty());
        let [tokens, in_weights, out_tokens, weights] = &mut tensors;
        let mut raw_inputs = ncclEpCombineInputs_t::init();
        raw_inputs.tokens = tokens.bind(Some(inputs.tokens.view()));
        raw_inputs.topk_weights = in_weights.bind(view(&inputs.topk_weights));
        let mut raw_outputs = ncclEpCombineOutputs_t::init();
        raw_outputs.tokens = out_tokens.bind(Some(outputs.tokens.view()));
        // Low-latency expert-major reads its routing weights through an output's name (EP 4.4.1).
        let routing = view(&inputs.routing_weights).or(view_mut(&outputs.topk_weights));
        raw_outputs.topk_weights = weights.bind(routing);
        let mut raw_config = config.to_raw();
        raw_config.send_only = S::SEND_ONLY;
        let device = group.comm.activate()?;
        let calls = group.comm.lock();
        // SAFETY: as in `DispatchCall::run`. The library only reads the routing weights, so a
        // shared borrow behind the output's pointer is enough.
        let call = || unsafe {
            group.call(
                "ncclEpCombine",
                group.api.ncclEpCombine,
                (
                    handle.raw,
                    &raw const raw_inputs,
                    &raw const raw_outputs,
                    &raw const raw_config,
                    stream.as_raw(),
                ),
            )
        };
        let uses = [
            self.indices,
            inputs.tokens.as_use(),
            use_of(&inputs.topk_weights),
            use_of(&inputs.routing_weights),
            outputs.tokens.as_use(),
            use_mut(&outputs.topk_weights),
            handle.memory_use(),
        ];
        let sent = group.enqueue(stream, &uses, call);
        drop((calls, device));
        // As in `DispatchCall::run`, the descriptors above stay until the second half is done.
        sent.and_then(|()| stage.finish(handle, &uses, stream))
    }
}
