//! Steps: one routing, dispatched and combined.

mod combine;
mod create;
mod dispatch;
mod import;
mod restore;
mod stage;
mod update;
mod wait;

use std::borrow::BorrowMut;
use std::fmt;

use nccl_ext_core::{Result, Stream, Use};

use self::combine::CombineCall;
use self::dispatch::DispatchCall;
use self::stage::{Stage, Staged, Whole};
#[cfg(doc)]
use crate::Error;
use crate::args::{CombineInputs, CombineOutputs, DispatchInputs, DispatchOutputs, LayoutInfo};
use crate::config::{CombineConfig, DispatchConfig};
use crate::group::Round;
use crate::handle::Handle;
use crate::rules;
use crate::rules::combine::{ORDER, StepFacts};

/// A handle with the routing of one step: what [`Handle::update`] gives.
///
/// `dispatch` sends each token to its experts' ranks, `combine` brings the results back.
///
/// All calls of a group use the same buffers of the library (EP 4.11): a call on another stream than
/// the one before it waits for that on the device, by itself. The same goes for tensors and routing
/// indices in a [`Buffer`](nccl_ext_core::Buffer), or in other memory with
/// [`usage`](nccl_ext_core::DeviceBuffer::usage), that another stream used last.
///
/// # Wrong ids
/// What [`Handle::update`] finds wrong with the routing indices comes back as [`Error::Ids`] from
/// the next dispatch or combine that knows of it, also of an earlier step of the handle. On the host
/// that is the dispatch right after the update; on a GPU the call does not wait, and it may be a later
/// one. The call is made all the same: the rank stays in step with its peers, the group is fine, and
/// the step goes on with its next call. [`check`](Self::check) waits and asks.
///
/// `H` is `&mut Handle`, or `Handle` for a step that owns it. `'a` is the borrow of the routing indices,
/// for [`Handle::update_trusted`].
pub struct Step<'a, H: BorrowMut<Handle> = &'a mut Handle> {
    handle: H,
    tokens: usize,
    /// Rows that the dispatch of this step was given.
    dispatched: Option<u64>,
    round: Option<Round>,
    /// Of routing indices that the library reads itself; `None` where it reads the handle's copy.
    trusted: Option<Use<'a>>,
}

impl Step<'_, Handle> {
    /// Ends the step and gives its handle back.
    #[must_use]
    pub fn into_handle(self) -> Handle {
        self.handle
    }
}

impl<'a, H: BorrowMut<Handle>> Step<'a, H> {
    pub(crate) fn new(handle: H, tokens: usize) -> Self {
        Self { handle, tokens, dispatched: None, round: None, trusted: None }
    }

    pub(crate) fn trusted(self, indices: Use<'a>) -> Self {
        Self { trusted: Some(indices), ..self }
    }

    /// Tokens that this rank dispatches in this step.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The handle.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        self.handle.borrow()
    }

    /// Waits until the stream has run the update, and says what was found wrong with its ids, or with
    /// those of an earlier step, unless a call has said it already. Local.
    ///
    /// # Errors
    /// [`Error::Ids`]; [`Error::Invalid`] for a stream of another device; what the driver reports.
    pub fn check(&mut self, stream: Stream<'_>) -> Result<()> {
        let handle = self.handle.borrow_mut();
        stream.synchronize(handle.group.comm.device())?;
        handle.ids.take_error()
    }

    /// Sends this rank's tokens and receives those of its experts. Every rank calls it.
    ///
    /// `layout_info` is for low latency: expert-major requires `expert_counters` (`[local
    /// experts]` int32), rank-major takes `src_rank_counters`; HT uses only
    /// `recv_topk_idx_kind`. Rows past the counts are not written.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of dispatches is broken,
    /// [`Error::Busy`] while another handle's low-latency round is open,
    /// [`Error::Ids`] after the call was made with [wrong ids](#wrong-ids), and the
    /// errors of [every call](crate#errors).
    #[doc(alias = "ncclEpDispatch")]
    pub fn dispatch(
        &mut self,
        inputs: &DispatchInputs<'_>,
        outputs: &mut DispatchOutputs<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        config: &DispatchConfig,
        stream: Stream<'_>,
    ) -> Result<()> {
        self.dispatch_around(inputs, outputs, layout_info, config, stream, Whole)
    }

    /// Dispatches in two halves: sends, runs `overlap`, then waits for what the peers sent. The
    /// outputs hold their rows once the stream has run the second half.
    ///
    /// While `overlap` runs nothing else of the group can be called: this step is borrowed, and
    /// other handles of a low-latency group are `Busy`. A panic in `overlap` passes through after
    /// the second half, since the peers wait for it. High throughput does all of it in the first
    /// half.
    ///
    /// # Errors
    /// The errors of [`dispatch`](Self::dispatch), from either half. What `overlap` gave is dropped
    /// then, also with [`Error::Ids`].
    #[doc(alias = "ncclEpComplete")]
    pub fn staged_dispatch<T>(
        &mut self,
        inputs: &DispatchInputs<'_>,
        outputs: &mut DispatchOutputs<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        config: &DispatchConfig,
        stream: Stream<'_>,
        overlap: impl FnOnce() -> T,
    ) -> Result<T> {
        self.dispatch_around(inputs, outputs, layout_info, config, stream, Staged(overlap))
    }

    fn dispatch_around<S: Stage>(
        &mut self,
        inputs: &DispatchInputs<'_>,
        outputs: &mut DispatchOutputs<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        config: &DispatchConfig,
        stream: Stream<'_>,
        stage: S,
    ) -> Result<S::Output> {
        let handle = self.handle.borrow();
        let group = &handle.group;
        group.in_step()?;
        let round = open_round(handle, &self.round)?;
        let (tokens, indices) = (self.tokens, self.trusted.unwrap_or(handle.ids.as_use()));
        let call = DispatchCall { handle, tokens, indices, inputs, outputs, config };
        let rows = group.collective(call.check(layout_info.as_deref(), stream))?;
        let output = group.collective(call.run(layout_info, stream, stage))?;
        self.round = round.or_else(|| self.round.take());
        self.dispatched = Some(rows);
        self.handle.borrow_mut().ids.take_error()?;
        Ok(output)
    }

    /// Brings expert outputs back to their tokens and adds them up. Every rank calls it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of combines is broken, such as a
    /// low-latency combine without a dispatch in this step;
    /// [`Error::Busy`] while another handle's low-latency round is open;
    /// [`Error::Ids`] after the call was made with [wrong ids](#wrong-ids); and the
    /// errors of [every call](crate#errors).
    #[doc(alias = "ncclEpCombine")]
    pub fn combine(
        &mut self,
        inputs: &CombineInputs<'_>,
        outputs: &mut CombineOutputs<'_>,
        config: &CombineConfig,
        stream: Stream<'_>,
    ) -> Result<()> {
        self.combine_around(inputs, outputs, config, stream, Whole)
    }

    /// Combines in two halves, as [`staged_dispatch`](Self::staged_dispatch) does.
    ///
    /// # Errors
    /// The errors of [`combine`](Self::combine), from either half.
    #[doc(alias = "ncclEpComplete")]
    pub fn staged_combine<T>(
        &mut self,
        inputs: &CombineInputs<'_>,
        outputs: &mut CombineOutputs<'_>,
        config: &CombineConfig,
        stream: Stream<'_>,
        overlap: impl FnOnce() -> T,
    ) -> Result<T> {
        self.combine_around(inputs, outputs, config, stream, Staged(overlap))
    }

    fn combine_around<S: Stage>(
        &mut self,
        inputs: &CombineInputs<'_>,
        outputs: &mut CombineOutputs<'_>,
        config: &CombineConfig,
        stream: Stream<'_>,
        stage: S,
    ) -> Result<S::Output> {
        let handle = self.handle.borrow();
        let group = &handle.group;
        group.in_step()?;
        let _round = open_round(handle, &self.round)?;
        let facts = StepFacts { mode: handle.mode, dispatched: self.dispatched.is_some() };
        rules::check(ORDER, |broken| broken(&facts))?;
        let step_rows = self.dispatched.unwrap_or(group.geometry.max_recv);
        let (tokens, indices) = (self.tokens, self.trusted.unwrap_or(handle.ids.as_use()));
        let call = CombineCall { handle, tokens, indices, step_rows, inputs, outputs, config };
        group.collective(call.check(stream))?;
        let output = group.collective(call.run(stream, stage))?;
        self.round = None;
        self.handle.borrow_mut().ids.take_error()?;
        Ok(output)
    }
}

/// Opens a low-latency round unless this step has one. High throughput has no rounds.
fn open_round(handle: &Handle, own: &Option<Round>) -> Result<Option<Round>> {
    if handle.mode.is_high_throughput() || own.is_some() {
        return Ok(None);
    }
    handle.group.open_round(handle.id).map(Some)
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
