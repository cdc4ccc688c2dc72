//! Groups and handles on the CPU backend, and what dispatch and combine give there.

use std::borrow::BorrowMut;
use std::fmt::Debug;

use nccl_ep::{
    Algorithm, CombineConfig, CombineInputs, CombineOutputs, Comm, DispatchConfig, DispatchInputs,
    DispatchOutputs, Error, ExpertIdKind, Group, GroupConfig, Handle, HandleConfig, Layout,
    LayoutInfo, Result, Step, Tensor, TensorMut, TopK, bf16,
};
pub(crate) use nccl_ext_test::routing::G2;
pub(crate) use nccl_ext_test::worlds::*;

/// Low latency for [`G2`].
pub(crate) fn low_latency() -> GroupConfig {
    GroupConfig::new().num_experts(4).max_dispatch_tokens_per_rank(4).max_token_bytes(1024)
}

/// High throughput for [`G2`].
pub(crate) fn high_throughput() -> GroupConfig {
    low_latency().algorithm(Algorithm::HighThroughput).max_recv_tokens_per_rank(16)
}

/// A handle for two experts per token.
pub(crate) fn top2(group: &Group, layout: Layout) -> Result<Handle> {
    group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None)
}

/// A group, and a handle for two experts per token.
pub(crate) fn handle(comm: &Comm, config: &GroupConfig, layout: Layout) -> Result<(Group, Handle)> {
    let group = Group::create(comm, config)?;
    let handle = top2(&group, layout)?;
    Ok((group, handle))
}

/// Runs `body` on every rank of a new world, with a group and a handle for two experts per token,
/// and destroys both after it. No rank fails.
#[track_caller]
pub(crate) fn with_handle<T: Send + Debug>(
    ranks: usize,
    config: &GroupConfig,
    layout: Layout,
    body: impl Fn(&Group, &mut Handle) -> Result<T> + Sync,
) -> Vec<T> {
    on_ranks(ranks, |comm| {
        let (group, mut handle) = handle(&comm, config, layout)?;
        let result = body(&group, &mut handle)?;
        handle.destroy()?;
        group.destroy()?;
        comm.destroy()?;
        Ok(result)
    })
}

/// What a low-latency expert-major dispatch gave.
pub(crate) struct ExpertMajor {
    pub(crate) counters: Vec<i32>,
    pub(crate) rows: Vec<bf16>,
    local: usize,
    slots: usize,
    hidden: usize,
}

impl ExpertMajor {
    pub(crate) const CANARY: f32 = -77.0;

    pub(crate) fn new(group: &Group, max_tokens: usize, hidden: usize) -> Self {
        Self::new_for(group.local_experts(), group.comm().size() * max_tokens, hidden)
    }

    pub(crate) fn new_for(local: usize, slots: usize, hidden: usize) -> Self {
        let rows = vec![bf16::from_f32(Self::CANARY); local * slots * hidden];
        Self { counters: vec![-1; local], rows, local, slots, hidden }
    }

    pub(crate) fn dispatch<H>(&mut self, step: &mut Step<'_, H>, tokens: &[bf16]) -> Result<()>
    where
        H: BorrowMut<Handle>,
    {
        let shape = [step.tokens(), self.hidden];
        let inputs = DispatchInputs::new(Tensor::new(tokens, &shape)?);
        let rows = TensorMut::new(&mut self.rows, &[self.local, self.slots, self.hidden])?;
        let mut outputs = DispatchOutputs::new(rows);
        let counters = TensorMut::new(&mut self.counters, &[self.local])?;
        let mut info = LayoutInfo::new().expert_counters(counters);
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &DispatchConfig::new(), STREAM)
    }

    pub(crate) fn combine<H>(&self, step: &mut Step<'_, H>, weights: &[f32]) -> Result<Vec<bf16>>
    where
        H: BorrowMut<Handle>,
    {
        let (tokens, topk) = (step.tokens(), step.handle().num_topk());
        let mut combined = vec![bf16::ZERO; tokens * self.hidden];
        let rows = Tensor::new(&self.rows, &[self.local, self.slots, self.hidden])?;
        let inputs =
            CombineInputs::new(rows).routing_weights(Tensor::new(weights, &[tokens, topk])?);
        let mut outputs =
            CombineOutputs::new(TensorMut::new(&mut combined, &[tokens, self.hidden])?);
        step.combine(&inputs, &mut outputs, &CombineConfig::new(), STREAM)?;
        Ok(combined)
    }

    /// Dispatches [`G2`] and combines what arrives, to one value per token.
    pub(crate) fn round_of_g2<H>(&mut self, step: &mut Step<'_, H>, rank: usize) -> Result<Vec<f32>>
    where
        H: BorrowMut<Handle>,
    {
        self.dispatch(step, &G2::tokens(rank, self.hidden))?;
        Ok(row_values(&self.combine(step, &G2::weights(rank))?, self.hidden))
    }

    /// First elements of an expert's rows, sorted; and of the rows after them.
    pub(crate) fn zone(&self, expert: usize) -> (Vec<f32>, Vec<f32>) {
        let row = |slot: usize| self.rows[(expert * self.slots + slot) * self.hidden].to_f32();
        let count = usize::try_from(self.counters[expert]).unwrap();
        let mut live: Vec<_> = (0..count).map(row).collect();
        live.sort_by(f32::total_cmp);
        (live, (count..self.slots).map(row).collect())
    }
}

/// A dispatch of [`G2::IDS`] in high throughput, which is made and then tells rank 1 of the id that
/// stands twice in its second row.
pub(crate) fn repeat_told(dispatched: Result<()>) -> Result<()> {
    match dispatched {
        Err(Error::Ids { count: 1, token: 1, choice: 1 }) => Ok(()),
        other => other,
    }
}

/// What a high-throughput flat dispatch gave.
#[derive(Debug)]
pub(crate) struct Flat {
    pub(crate) rows: Vec<bf16>,
    pub(crate) weights: Vec<f32>,
    pub(crate) ids: Vec<i64>,
    pub(crate) capacity: usize,
    pub(crate) hidden: usize,
    pub(crate) topk: usize,
}

impl Flat {
    pub(crate) fn new(capacity: usize, hidden: usize, topk: usize) -> Self {
        let rows = vec![bf16::from_f32(ExpertMajor::CANARY); capacity * hidden];
        let (weights, ids) = (vec![-77.0; capacity * topk], vec![-77; capacity * topk]);
        Self { rows, weights, ids, capacity, hidden, topk }
    }

    pub(crate) fn dispatch<H>(
        &mut self,
        step: &mut Step<'_, H>,
        tokens: &[bf16],
        weights: &[f32],
        kind: ExpertIdKind,
    ) -> Result<()>
    where
        H: BorrowMut<Handle>,
    {
        let count = step.tokens();
        let inputs = DispatchInputs::new(Tensor::new(tokens, &[count, self.hidden])?)
            .topk_weights(Tensor::new(weights, &[count, self.topk])?);
        let ids = [self.capacity, self.topk];
        let mut outputs =
            DispatchOutputs::new(TensorMut::new(&mut self.rows, &[self.capacity, self.hidden])?)
                .topk_weights(TensorMut::new(&mut self.weights, &ids)?)
                .topk_idx(TensorMut::new(&mut self.ids, &ids)?);
        let mut info = LayoutInfo::new().recv_topk_idx_kind(kind);
        let plain = DispatchConfig::new();
        repeat_told(step.dispatch(&inputs, &mut outputs, Some(&mut info), &plain, STREAM))
    }

    pub(crate) fn combine<H>(&self, step: &mut Step<'_, H>) -> Result<Vec<bf16>>
    where
        H: BorrowMut<Handle>,
    {
        let tokens = step.tokens();
        let mut combined = vec![bf16::ZERO; tokens * self.hidden];
        let inputs = CombineInputs::new(Tensor::new(&self.rows, &[self.capacity, self.hidden])?);
        let mut outputs =
            CombineOutputs::new(TensorMut::new(&mut combined, &[tokens, self.hidden])?);
        step.combine(&inputs, &mut outputs, &CombineConfig::new(), STREAM)?;
        Ok(combined)
    }

    /// Dispatches [`G2`] and combines what arrives, to one value per token.
    pub(crate) fn round_of_g2<H>(&mut self, step: &mut Step<'_, H>, rank: usize) -> Result<Vec<f32>>
    where
        H: BorrowMut<Handle>,
    {
        let (tokens, weights) = (G2::tokens(rank, self.hidden), G2::weights(rank));
        self.dispatch(step, &tokens, &weights, ExpertIdKind::Auto)?;
        Ok(row_values(&self.combine(step)?, self.hidden))
    }

    /// First elements of the first `count` rows.
    pub(crate) fn values(&self, count: usize) -> Vec<f32> {
        (0..count).map(|row| self.rows[row * self.hidden].to_f32()).collect()
    }
}

/// First elements of combined rows, after checking that each row is of one value.
pub(crate) fn row_values(combined: &[bf16], hidden: usize) -> Vec<f32> {
    let rows = combined.chunks_exact(hidden);
    rows.map(|row| {
        assert!(row.iter().all(|x| x.to_bits() == row[0].to_bits()), "a row of one value");
        row[0].to_f32()
    })
    .collect()
}
