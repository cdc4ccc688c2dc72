//! Sending tokens to their experts.

use nccl_ep_sys::{VersionedStruct, ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t};
use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::rules::{RuleInfo, Violation};
use nccl_ext_core::{Result, Scope, Stream};

use super::sizes;
use super::stage::Stage;
use crate::args::{DispatchInputs, DispatchOutputs, LayoutInfo, view, view_mut};
use crate::config::DispatchConfig;
use crate::enums::ExpertIdKind;
use crate::handle::{Handle, InfoDescriptors};
use crate::rules;
use crate::rules::call::{self, Facts};
use crate::rules::tensors::{self, Call, Slot};
use crate::tensor::Descriptor;

pub(super) struct DispatchCall<'c> {
    pub(super) handle: &'c Handle,
    pub(super) tokens: usize,
    pub(super) inputs: &'c DispatchInputs<'c>,
    pub(super) outputs: &'c DispatchOutputs<'c>,
    pub(super) config: &'c DispatchConfig,
}

impl DispatchCall<'_> {
    /// Checks the rules; gives the rows of the output.
    pub(super) fn check(&self, info: Option<&LayoutInfo<'_>>, stream: Stream<'_>) -> Result<u64> {
        let Self { handle, inputs, outputs, config, .. } = *self;
        let geometry = &handle.group.geometry;
        let rows = inputs.tokens.view();
        let out_tokens = outputs.tokens.view();
        let out_rows = out_tokens.shape.first().map_or(0, |extent| *extent as u64);
        let scales = [view(&inputs.scales), view_mut(&outputs.scales)];
        let sizes = sizes(handle, self.tokens, rows, scales[0], out_rows, out_rows);
        let in_weights = view(&inputs.topk_weights);
        let out_weights = view_mut(&outputs.topk_weights);
        let out_idx = view_mut(&outputs.topk_idx);
        let counters = info.map(|info| {
            [
                view_mut(&info.expert_counters),
                view_mut(&info.src_rank_counters),
                view_mut(&info.expert_offsets),
                view_mut(&info.recv_total_counter),
            ]
        });
        let [expert_counters, src_rank, offsets, total] = counters.unwrap_or_default();
        let call = Call::Dispatch(config.pass_direction);
        let recipe = config.quantization_recipe;
        tensors::check(call, handle.mode, recipe, &handle.group, &sizes, |slot| match slot {
            Slot::InTokens => Some(rows),
            Slot::InWeights => in_weights,
            Slot::OutTokens => Some(out_tokens),
            Slot::OutWeights => out_weights,
            Slot::OutIdx => out_idx,
            Slot::LiExpertCounters => expert_counters,
            Slot::LiSrcRankCounters => src_rank,
            Slot::LiExpertOffsets => offsets,
            Slot::LiRecvTotal => total,
            Slot::InScales => scales[0],
            Slot::OutScales => scales[1],
            _ => None,
        })?;
        let facts = Facts {
            geometry,
            mode: handle.mode,
            pass: config.pass_direction,
            topk: handle.topk,
            rows: Some(rows),
            out_tokens: Some(out_tokens),
            out_weights,
            out_idx,
            in_weights: None,
            counters: [None; 3],
            recipe,
            scales,
        };
        rules::check(call::DISPATCH, |broken| broken(&facts))?;
        if geometry.eager && stream.is_capturing(&handle.group.comm)? {
            let rule = "an eager dispatch reads its count on the host, which a graph cannot";
            let info =
                RuleInfo::new("dispatch.eager-capture", "stream", rule, "EP 7.4", Scope::Local);
            let expected = "a stream that is not being captured, or a max_recv_tokens_per_rank";
            return Err(info.broken(Violation::new(expected, "a capturing stream")));
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
        let kind_asked_for =
            |info: &&mut LayoutInfo<'_>| info.recv_topk_idx_kind != ExpertIdKind::Auto;
        let mut descriptors = InfoDescriptors::empty();
        let info = info.filter(|info| !handle.mode.is_high_throughput() || kind_asked_for(info));
        let info = descriptors.bind(info);
        let mut raw_config = config.to_raw();
        raw_config.send_only = S::SEND_ONLY;
        let device = group.comm.activate()?;
        let calls = group.comm.lock();
        // SAFETY: handle and group live, all pointers outlive the call, every tensor passed the
        // rules, and its owner keeps the memory valid until enqueued work is done.
        let sent = unsafe {
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
        drop((calls, device));
        // The descriptors above stay where they are until the second half is done: the library
        // keeps pointers to them.
        sent.and_then(|()| stage.finish(handle, stream))
    }
}
