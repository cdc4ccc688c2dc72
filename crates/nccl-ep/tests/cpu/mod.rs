//! Small worlds on the CPU backend, and the fixtures of EP 9.0.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::fmt::Debug;
use std::time::Duration;

use nccl_ep::{
    Algorithm, CombineConfig, CombineInputs, CombineOutputs, Comm, DispatchConfig, DispatchInputs,
    DispatchOutputs, Error, ExpertIdKind, Group, GroupConfig, Handle, Layout, LayoutInfo, Result,
    Step, Stream, Tensor, TensorMut, bf16,
};
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};

pub const STREAM: Stream<'static> = Stream::DEFAULT;

/// Runs `body` on every rank; each must succeed.
pub fn on_ranks<T: Send + Debug>(ranks: usize, body: impl Fn(Comm) -> Result<T> + Sync) -> Vec<T> {
    let results = outcomes(ranks, body);
    results.into_iter().map(|result| result.unwrap()).collect()
}

/// Runs `body` on every rank with a short time-out and gives each rank's result.
pub fn outcomes<T: Send>(
    ranks: usize,
    body: impl Fn(Comm) -> Result<T> + Sync,
) -> Vec<Result<T, RankFailure<Error>>> {
    run_ranks(ranks, &CpuConfig::new().timeout(Duration::from_secs(20)), body)
}

/// Waits until all ranks are here.
pub fn meet(comm: &Comm) -> Result<()> {
    let mut sum = [0_i32];
    comm.all_reduce(&[1_i32], &mut sum, nccl_ep::Reduction::Sum, STREAM)
}

/// EP 9.0 G2: two ranks, four experts, top-2, four tokens a rank.
pub struct G2;

impl G2 {
    pub const IDS: [[i64; 8]; 2] = [[0, 2, 3, 1, 1, 0, -1, -1], [2, -1, 3, 3, 0, 1, 2, 3]];

    /// Without the duplicate in rank 1's second row, which low-latency expert-major cannot take.
    pub const UNIQUE_IDS: [[i64; 8]; 2] = [Self::IDS[0], [2, -1, 3, -1, 0, 1, 2, 3]];

    pub fn value(rank: usize, token: usize) -> f32 {
        (rank * 4 + token + 1) as f32
    }

    pub fn tokens(rank: usize, hidden: usize) -> Vec<bf16> {
        let rows = (0..4).flat_map(|token| std::iter::repeat_n(Self::value(rank, token), hidden));
        rows.map(bf16::from_f32).collect()
    }

    pub fn weights(rank: usize) -> Vec<f32> {
        (0..8).map(|i| Self::value(rank, i / 2) + (i % 2) as f32 / 4.0).collect()
    }

    pub fn ll() -> GroupConfig {
        GroupConfig::new().num_experts(4).max_dispatch_tokens_per_rank(4).max_token_bytes(1024)
    }

    pub fn ht() -> GroupConfig {
        Self::ll().algorithm(Algorithm::HighThroughput).max_recv_tokens_per_rank(16)
    }
}

/// What an LL expert-major dispatch gave.
pub struct ExpertMajor {
    pub counters: Vec<i32>,
    pub rows: Vec<bf16>,
    local: usize,
    slots: usize,
    hidden: usize,
}

impl ExpertMajor {
    pub const CANARY: f32 = -77.0;

    pub fn new(group: &Group, max_tokens: usize, hidden: usize) -> Self {
        let (local, slots) = (group.local_experts(), group.comm().size() * max_tokens);
        let rows = vec![bf16::from_f32(Self::CANARY); local * slots * hidden];
        Self { counters: vec![-1; local], rows, local, slots, hidden }
    }

    pub fn dispatch<H>(&mut self, step: &mut Step<'_, H>, tokens: &[bf16]) -> Result<()>
    where
        H: std::borrow::BorrowMut<Handle>,
    {
        let shape = [step.tokens(), self.hidden];
        let inputs = DispatchInputs::new(Tensor::new(tokens, &shape)?);
        let rows = TensorMut::new(&mut self.rows, &[self.local, self.slots, self.hidden])?;
        let mut outputs = DispatchOutputs::new(rows);
        let counters = TensorMut::new(&mut self.counters, &[self.local])?;
        let mut info = LayoutInfo::new().expert_counters(counters);
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &DispatchConfig::new(), STREAM)
    }

    pub fn combine<H>(&self, step: &mut Step<'_, H>, weights: &[f32]) -> Result<Vec<bf16>>
    where
        H: std::borrow::BorrowMut<Handle>,
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

    /// First elements of an expert's rows, sorted; and of the rows after them.
    pub fn zone(&self, expert: usize) -> (Vec<f32>, Vec<f32>) {
        let row = |slot: usize| self.rows[(expert * self.slots + slot) * self.hidden].to_f32();
        let count = usize::try_from(self.counters[expert]).unwrap();
        let mut live: Vec<_> = (0..count).map(row).collect();
        live.sort_by(f32::total_cmp);
        (live, (count..self.slots).map(row).collect())
    }
}

/// What an HT flat dispatch gave.
#[derive(Debug)]
pub struct Flat {
    pub rows: Vec<bf16>,
    pub weights: Vec<f32>,
    pub ids: Vec<i64>,
    pub capacity: usize,
    pub hidden: usize,
    pub topk: usize,
}

impl Flat {
    pub fn new(capacity: usize, hidden: usize, topk: usize) -> Self {
        let rows = vec![bf16::from_f32(ExpertMajor::CANARY); capacity * hidden];
        let (weights, ids) = (vec![-77.0; capacity * topk], vec![-77; capacity * topk]);
        Self { rows, weights, ids, capacity, hidden, topk }
    }

    pub fn dispatch<H>(
        &mut self,
        step: &mut Step<'_, H>,
        tokens: &[bf16],
        weights: &[f32],
        kind: ExpertIdKind,
    ) -> Result<()>
    where
        H: std::borrow::BorrowMut<Handle>,
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
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &DispatchConfig::new(), STREAM)
    }

    pub fn combine<H>(&self, step: &mut Step<'_, H>) -> Result<Vec<bf16>>
    where
        H: std::borrow::BorrowMut<Handle>,
    {
        let tokens = step.tokens();
        let mut combined = vec![bf16::ZERO; tokens * self.hidden];
        let inputs = CombineInputs::new(Tensor::new(&self.rows, &[self.capacity, self.hidden])?);
        let mut outputs =
            CombineOutputs::new(TensorMut::new(&mut combined, &[tokens, self.hidden])?);
        step.combine(&inputs, &mut outputs, &CombineConfig::new(), STREAM)?;
        Ok(combined)
    }

    /// First elements of the first `count` rows.
    pub fn values(&self, count: usize) -> Vec<f32> {
        (0..count).map(|row| self.rows[row * self.hidden].to_f32()).collect()
    }
}

/// First elements of combined rows, after checking that each row is of one value.
pub fn row_values(combined: &[bf16], hidden: usize) -> Vec<f32> {
    let rows = combined.chunks_exact(hidden);
    rows.map(|row| {
        assert!(row.iter().all(|x| x.to_bits() == row[0].to_bits()), "a row of one value");
        row[0].to_f32()
    })
    .collect()
}

/// A group and a handle without routing.
pub fn handle(comm: &Comm, config: &GroupConfig, layout: Layout) -> Result<(Group, Handle)> {
    let group = Group::create(comm, config)?;
    let options = nccl_ep::HandleConfig::new();
    let handle = group.init_handle(layout, &options, nccl_ep::TopK::N(2), None)?;
    Ok((group, handle))
}
