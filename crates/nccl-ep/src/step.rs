//! Steps: one routing, dispatched and combined.

use std::borrow::BorrowMut;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use nccl_ep_sys::{
    ncclEpCombineInputs_t, ncclEpCombineOutputs_t, ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t,
};
use nccl_ext_core::binding::{BindingStruct, VersionedStruct};
use nccl_ext_core::{DataType, DeviceBuffer, Error, Result, Scope, Stream};

use crate::args::{
    CombineInputs, CombineOutputs, DispatchInputs, DispatchOutputs, LayoutInfo, view, view_mut,
};
use crate::config::{CombineConfig, DispatchConfig};
use crate::enums::ExpertIdKind;
use crate::group::Round;
use crate::handle::{Handle, InfoDescriptors};
use crate::rules::call::{self, Facts};
use crate::rules::tensors::{self, Call, Sizes, Slot};
use crate::rules::{self};
use crate::tensor::{Descriptor, View};

/// What keeps the routing indices alive.
pub(crate) struct Indices<'a> {
    _shared: Option<Arc<dyn DeviceBuffer + Send + Sync>>,
    _borrowed: PhantomData<&'a ()>,
}

impl Indices<'_> {
    pub(crate) fn borrowed() -> Self {
        Self { _shared: None, _borrowed: PhantomData }
    }

    pub(crate) fn shared(indices: Arc<dyn DeviceBuffer + Send + Sync>) -> Self {
        Self { _shared: Some(indices), _borrowed: PhantomData }
    }
}

/// A handle with the routing of one step: what [`Handle::update`] gives.
///
/// `dispatch` sends each token to its experts' ranks, `combine` brings the results back. The
/// handle and the routing indices stay borrowed until the step ends: low-latency kernels read the
/// indices in both calls. `H` is `&mut Handle`, or `Handle` for a step that owns it.
pub struct Step<'a, H: BorrowMut<Handle> = &'a mut Handle> {
    handle: H,
    tokens: usize,
    /// Rows that the dispatch of this step was given.
    dispatched: Option<u64>,
    round: Option<Round>,
    _indices: Indices<'a>,
}

impl Step<'_, Handle> {
    /// Ends the step and gives its handle back.
    #[must_use]
    pub fn into_handle(self) -> Handle {
        self.handle
    }
}

impl<'a, H: BorrowMut<Handle>> Step<'a, H> {
    pub(crate) fn new(handle: H, tokens: usize, indices: Indices<'a>) -> Self {
        Self { handle, tokens, dispatched: None, round: None, _indices: indices }
    }

    /// Tokens that this rank dispatches in this step.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The handle, for what it can be asked.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        self.handle.borrow()
    }

    /// Sends this rank's tokens and receives those of its experts. Every rank calls it.
    ///
    /// `layout_info` is for low latency: expert-major requires `expert_counters` (`[local
    /// experts]` int32), rank-major takes `src_rank_counters`; HT uses `recv_topk_idx_kind`
    /// alone. Rows at and beyond the counts stay as they were.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule is broken, [`Error::Busy`] while another handle's
    /// low-latency round is open, [`Error::Diverged`], and what the library reports.
    #[doc(alias = "ncclEpDispatch")]
    pub fn dispatch(
        &mut self,
        inputs: &DispatchInputs<'_>,
        outputs: &mut DispatchOutputs<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        config: &DispatchConfig,
        stream: Stream<'_>,
    ) -> Result<()> {
        let handle = self.handle.borrow();
        let group = &handle.group;
        group.in_step()?;
        let round = if handle.place_is_ht() { None } else { Some(group.open_round(handle.id)?) };
        let call = DispatchCall { handle, tokens: self.tokens, inputs, outputs, config };
        let rows = group.collective(call.check(layout_info.as_deref(), stream))?;
        group.collective(call.run(layout_info, stream))?;
        self.round = round;
        self.dispatched = Some(rows);
        Ok(())
    }

    /// Brings expert outputs back to their tokens and adds them up. Every rank calls it.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch); [`Error::Invalid`] for a low-latency combine without a
    /// dispatch in this step, since the library would read slots that nobody wrote.
    #[doc(alias = "ncclEpCombine")]
    pub fn combine(
        &mut self,
        inputs: &CombineInputs<'_>,
        outputs: &mut CombineOutputs<'_>,
        config: &CombineConfig,
        stream: Stream<'_>,
    ) -> Result<()> {
        let handle = self.handle.borrow();
        let group = &handle.group;
        group.in_step()?;
        if !handle.place_is_ht() {
            group.no_other_round(handle.id)?;
            if self.dispatched.is_none() {
                return Err(Error::Invalid {
                    argument: "step",
                    rule: "a low-latency combine returns what a dispatch of the step brought",
                    expected: "a dispatch before it".into(),
                    found: "none".into(),
                    scope: Scope::Uniform,
                });
            }
        }
        let step_rows = self.dispatched.unwrap_or(group.geometry.max_recv);
        let call = CombineCall { handle, tokens: self.tokens, step_rows, inputs, outputs, config };
        group.collective(call.check())?;
        group.collective(call.run(stream))?;
        self.round = None;
        Ok(())
    }
}

impl<H: BorrowMut<Handle>> fmt::Debug for Step<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("handle", self.handle.borrow())
            .field("tokens", &self.tokens)
            .field("dispatched", &self.dispatched.is_some())
            .finish_non_exhaustive()
    }
}

/// Width, type and rows of a call's token tensors.
fn sizes<'f>(
    handle: &'f Handle,
    tokens: usize,
    rows: &View,
    out_rows: u64,
    step_rows: u64,
) -> Sizes<'f> {
    Sizes {
        geometry: &handle.group.geometry,
        topk: handle.topk,
        tokens: tokens as u64,
        hidden: rows.shape.last().map_or(0, |extent| *extent as u64),
        token_type: match rows.data_type() {
            // Anything else is refused by the input's own row.
            data_type @ (DataType::Bfloat16 | DataType::Float16 | DataType::Float32) => data_type,
            _ => DataType::Bfloat16,
        },
        out_rows,
        step_rows,
    }
}

struct DispatchCall<'c> {
    handle: &'c Handle,
    tokens: usize,
    inputs: &'c DispatchInputs<'c>,
    outputs: &'c DispatchOutputs<'c>,
    config: &'c DispatchConfig,
}

impl DispatchCall<'_> {
    /// Checks the rules; gives the rows of the output.
    fn check(&self, info: Option<&LayoutInfo<'_>>, stream: Stream<'_>) -> Result<u64> {
        let Self { handle, inputs, outputs, config, .. } = *self;
        let geometry = &handle.group.geometry;
        let rows = inputs.tokens.view();
        let out_tokens = outputs.tokens.view();
        let out_rows = out_tokens.shape.first().map_or(0, |extent| *extent as u64);
        let sizes = sizes(handle, self.tokens, rows, out_rows, out_rows);
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
        tensors::check(call, handle.place, &handle.group.comm, &sizes, |slot| match slot {
            Slot::InTokens => Some(rows),
            Slot::InWeights => in_weights,
            Slot::OutTokens => Some(out_tokens),
            Slot::OutWeights => out_weights,
            Slot::OutIdx => out_idx,
            Slot::LiExpertCounters => expert_counters,
            Slot::LiSrcRankCounters => src_rank,
            Slot::LiExpertOffsets => offsets,
            Slot::LiRecvTotal => total,
            _ => None,
        })?;
        let facts = Facts {
            geometry,
            place: handle.place,
            pass: config.pass_direction,
            topk: handle.topk,
            rows: Some(rows),
            out_tokens: Some(out_tokens),
            out_weights,
            counters: [None; 3],
        };
        rules::check(call::DISPATCH, |broken| broken(&facts))?;
        if geometry.eager && stream.is_capturing(&handle.group.comm)? {
            return Err(Error::Invalid {
                argument: "stream",
                rule: "an eager dispatch reads its count on the host, which a graph cannot",
                expected: "a stream that is not being captured, or a max_recv_tokens_per_rank"
                    .into(),
                found: "a capturing stream".into(),
                scope: Scope::Local,
            });
        }
        Ok(out_rows)
    }

    fn run(&self, info: Option<&mut LayoutInfo<'_>>, stream: Stream<'_>) -> Result<()> {
        let Self { handle, inputs, outputs, config, .. } = *self;
        let group = &handle.group;
        let mut tensors: [Descriptor; 5] = std::array::from_fn(|_| Descriptor::empty());
        let [tokens, weights, out_tokens, out_weights, out_idx] = &mut tensors;
        let mut raw_inputs = ncclEpDispatchInputs_t::init();
        raw_inputs.tokens = tokens.bind(Some(inputs.tokens.view()));
        raw_inputs.topk_weights = weights.bind(view(&inputs.topk_weights));
        let mut raw_outputs = ncclEpDispatchOutputs_t::init();
        raw_outputs.tokens = out_tokens.bind(Some(outputs.tokens.view()));
        raw_outputs.topk_weights = out_weights.bind(view_mut(&outputs.topk_weights));
        raw_outputs.topk_idx = out_idx.bind(view_mut(&outputs.topk_idx));
        let kind_asked_for =
            |info: &&mut LayoutInfo<'_>| info.recv_topk_idx_kind != ExpertIdKind::Auto;
        let mut descriptors = InfoDescriptors::empty();
        let info = info.filter(|info| !handle.place_is_ht() || kind_asked_for(info));
        let info = descriptors.bind(info);
        let raw_config = config.to_raw();
        let _device = group.comm.activate()?;
        let _calls = group.comm.lock();
        // SAFETY: handle and group live, all pointers outlive the call, every tensor passed the
        // rules, and its owner keeps the memory valid until enqueued work is done.
        unsafe {
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
        }
    }
}

struct CombineCall<'c> {
    handle: &'c Handle,
    tokens: usize,
    step_rows: u64,
    inputs: &'c CombineInputs<'c>,
    outputs: &'c CombineOutputs<'c>,
    config: &'c CombineConfig,
}

impl CombineCall<'_> {
    fn check(&self) -> Result<()> {
        let Self { handle, inputs, outputs, config, .. } = *self;
        let rows = inputs.tokens.view();
        let out_tokens = outputs.tokens.view();
        let sizes = sizes(handle, self.tokens, rows, 0, self.step_rows);
        let in_weights = view(&inputs.topk_weights);
        let routing_weights = view(&inputs.routing_weights);
        let out_weights = view_mut(&outputs.topk_weights);
        let call = Call::Combine(config.pass_direction);
        tensors::check(call, handle.place, &handle.group.comm, &sizes, |slot| match slot {
            Slot::InTokens => Some(rows),
            Slot::InWeights => in_weights,
            Slot::RoutingWeights => routing_weights,
            Slot::OutTokens => Some(out_tokens),
            Slot::OutWeights => out_weights,
            _ => None,
        })?;
        let facts = Facts {
            geometry: &handle.group.geometry,
            place: handle.place,
            pass: config.pass_direction,
            topk: handle.topk,
            rows: Some(rows),
            out_tokens: None,
            out_weights: None,
            counters: [None; 3],
        };
        rules::check(call::COMBINE, |broken| broken(&facts))
    }

    fn run(&self, stream: Stream<'_>) -> Result<()> {
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
        let raw_config = config.to_raw();
        let _device = group.comm.activate()?;
        let _calls = group.comm.lock();
        // SAFETY: as in `DispatchCall::run`. The library only reads the routing weights, so a
        // shared borrow behind the output's pointer is enough.
        unsafe {
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
        }
    }
}
