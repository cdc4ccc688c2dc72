//! Sending tokens to their experts.

use nccl_ep_sys::{VersionedStruct, ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t};
use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::{DataType, Result, Stream, Use};

use super::stage::Stage;
use crate::args::{
    DispatchInputs, DispatchOutputs, LayoutInfo, NO_COUNTERS, use_mut, use_of, view, view_mut,
};
use crate::config::DispatchConfig;
use crate::enums::ExpertIdKind;
use crate::handle::{Handle, LayoutInfoDescriptors};
use crate::rules;
use crate::rules::dispatch::{DispatchFacts, RULES};
use crate::rules::stream::{EAGER_DISPATCH, StreamFacts};
use crate::rules::tensor_row::extents::Sizes;
use crate::rules::tensor_row::{Call, Slot};
use crate::rules::tensors::TensorFacts;
use crate::tensor::Descriptor;
use crate::view::View;

pub(super) struct DispatchCall<'c> {
    pub(super) handle: &'c Handle,
    pub(super) tokens: usize,
    pub(super) indices: Use<'c>,
    pub(super) inputs: &'c DispatchInputs<'c>,
    pub(super) outputs: &'c DispatchOutputs<'c>,
    pub(super) config: &'c DispatchConfig,
}

impl DispatchCall<'_> {
    /// Checks the rules; gives the rows of the output.
    pub(super) fn check(&self, info: Option<&LayoutInfo<'_>>, stream: Stream<'_>) -> Result<u64> {
        let Self { handle, inputs, outputs, config, .. } = *self;
        let geometry = &handle.group.geometry;
        let recipe = config.quantization_recipe;
        let (tokens, out_tokens) = (inputs.tokens.view(), outputs.tokens.view());
        let out_weights = view_mut(&outputs.topk_weights);
        let out_idx = view_mut(&outputs.topk_idx);
        let scales = [view(&inputs.scales), view_mut(&outputs.scales)];
        let out_rows = out_tokens.rows();
        let sizes = Sizes {
            tokens: self.tokens as u64,
            hidden: tokens.row_width(),
            token_type: tokens.data_type(),
            scale_width: scales[0].map_or(0, View::row_width),
            scale_type: scales[0].map_or(DataType::Float32, View::data_type),
            out_rows,
            step_rows: out_rows,
            ..Sizes::new(geometry, handle.topk)
        };
        let facts = TensorFacts {
            call: Call::Dispatch(config.pass_direction),
            mode: handle.mode,
            recipe,
            sizes: &sizes,
            tensor: &|slot| match slot {
                Slot::InTokens => Some(tokens),
                Slot::InWeights => view(&inputs.topk_weights),
                Slot::InScales => scales[0],
                Slot::OutTokens => Some(out_tokens),
                Slot::OutWeights => out_weights,
                Slot::OutIdx => out_idx,
                Slot::OutScales => scales[1],
                _ => info.and_then(|info| info.view(slot)),
            },
        };
        handle.group.check_tensors(&facts, stream)?;
        let facts = DispatchFacts {
            geometry,
            mode: handle.mode,
            pass: config.pass_direction,
            topk: handle.topk,
            recipe,
            tokens,
            out_tokens: Some(out_tokens),
            out_weights,
            out_idx,
            scales,
        };
        rules::check(RULES, |broken| broken(&facts))?;
        if geometry.eager {
            let facts = StreamFacts { capturing: stream.is_capturing(&handle.group.comm)? };
            rules::check(EAGER_DISPATCH, |broken| broken(&facts))?;
        }
        Ok(out_rows)
    }

    pub(super) fn run<S: Stage>(
        &self,
        info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
        stage: S,
    ) -> Result<S::Output> {
        let Self { handle, inputs, outputs, config, .. } = *self;
        let group = &handle.group;
        let mut tensors: [Descriptor; 7] = std::array::from_fn(|_| Descriptor::empty());
        let [tokens, weights, scales, out_tokens, out_weights, out_idx, out_scales] = &mut tensors;
        let mut raw_inputs = ncclEpDispatchInputs_t::init();
        raw_inputs.tokens = tokens.bind(Some(inputs.tokens.view()));
        raw_inputs.topk_weights = weights.bind(view(&inputs.topk_weights));
        raw_inputs.scales = scales.bind(view(&inputs.scales));
        let mut raw_outputs = ncclEpDispatchOutputs_t::init();
        raw_outputs.tokens = out_tokens.bind(Some(outputs.tokens.view()));
        raw_outputs.topk_weights = out_weights.bind(view_mut(&outputs.topk_weights));
        raw_outputs.topk_idx = out_idx.bind(view_mut(&outputs.topk_idx));
        raw_outputs.scales = out_scales.bind(view_mut(&outputs.scales));
        let counters = info.as_deref().map_or(NO_COUNTERS, LayoutInfo::uses);
        let uses = self.uses(counters);
        let kind_asked_for =
            |info: &&mut LayoutInfo<'_>| info.recv_topk_idx_kind != ExpertIdKind::Auto;
        let mut descriptors = LayoutInfoDescriptors::empty();
        let info = info.filter(|info| !handle.mode.is_high_throughput() || kind_asked_for(info));
        let info = descriptors.bind(info);
        let mut raw_config = config.to_raw();
        raw_config.send_only = S::SEND_ONLY;
        let device = group.comm.activate()?;
        let calls = group.comm.lock();
        // SAFETY: handle and group live, all pointers outlive the call, every tensor passed the
        // rules, and its owner keeps the memory valid until enqueued work is done.
        let call = || unsafe {
            group.call(
                "ncclEpDispatch",
                group.api.ncclEpDispatch,
                (
                    handle.raw,
                    &raw const raw_inputs,
                    &raw const raw_outputs,
                    info,
                    &raw const raw_config,
                    stream.as_raw(),
                ),
            )
        };
        let sent = group.enqueue(stream, &uses, call);
        drop((calls, device));
        // The descriptors above stay where they are until the second half is done: the library
        // keeps pointers to them.
        sent.and_then(|()| stage.finish(handle, &uses, stream))
    }

    fn uses<'u>(&'u self, [a, b, c, d]: [Use<'u>; 4]) -> [Use<'u>; 13] {
        let Self { handle, inputs, outputs, .. } = self;
        [
            self.indices,
            inputs.tokens.as_use(),
            use_of(&inputs.topk_weights),
            use_of(&inputs.scales),
            outputs.tokens.as_use(),
            use_mut(&outputs.topk_weights),
            use_mut(&outputs.topk_idx),
            use_mut(&outputs.scales),
            a,
            b,
            c,
            d,
            handle.memory_use(),
        ]
    }
}
