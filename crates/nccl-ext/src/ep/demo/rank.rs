//! What a rank needs in every mode.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nccl_ep::{
    Buffer, CombineConfig, CombineInputs, CombineOutputs, Comm, Element, GlobalExpert, Group,
    GroupConfig, Handle, HandleConfig, LocalExpert, Mode, Placement, Result, Step, Stream, Tensor,
    TensorMut, TopK, bf16,
};
use nccl_ext_core::{OwnedStream, Reduction};

use super::limits;
use super::options::Options;
use super::received::Received;
use crate::routing::{Routing, Sizes};
use crate::rows;

/// What memory holds before it is written: NaNs in floats, -1 in integers.
const POISON: u8 = 0xFF;

/// One dispatch and combine, as one rank saw it.
#[derive(Debug, Clone)]
pub(super) struct Round {
    /// Rows received.
    pub rows: usize,
    /// What the library counted.
    pub counters: Vec<i64>,
    /// The combined tokens, `[tokens_per_rank, hidden]`. Rounds of equal bits share them.
    pub combined: Arc<Vec<bf16>>,
    /// What was received; of the first round alone.
    pub received: Option<Received>,
    /// Time of the dispatch.
    pub dispatch: Duration,
    /// Time of the combine.
    pub combine: Duration,
}

/// What a round's dispatch brought.
pub(super) struct Arrived {
    pub(super) rows: usize,
    pub(super) counters: Vec<i64>,
    pub(super) received: Option<Received>,
    pub(super) dispatch: Duration,
}

/// A rank with its tokens in the backend's memory.
pub(super) struct Rank<'a> {
    pub(super) comm: &'a Comm,
    pub(super) sizes: Sizes,
    pub(super) max_tokens: usize,
    pub(super) rounds: usize,
    /// Threads for this rank's experts, which are functions on the host.
    pub(super) threads: usize,
    stream: OwnedStream,
    corrupt: bool,
    tokens: Buffer<bf16>,
    topk_idx: Buffer<i64>,
    topk_weights: Buffer<f32>,
}

impl<'a> Rank<'a> {
    /// Copies the rank's part of the routing to the backend.
    ///
    /// # Errors
    /// What the backend reports.
    pub(super) fn new(comm: &'a Comm, routing: &Routing, options: &Options) -> Result<Self> {
        let (tokens, topk_idx, topk_weights) = routing.of_rank(comm.rank());
        Ok(Self {
            comm,
            sizes: routing.sizes,
            max_tokens: limits::max_tokens(routing),
            rounds: options.warm_up + options.rounds,
            threads: (rows::threads() / routing.sizes.ranks).max(1),
            stream: OwnedStream::new(comm)?,
            corrupt: options.corrupt && routing.first_receiver() == Some(comm.rank()),
            tokens: Buffer::from_slice(comm, tokens)?,
            topk_idx: Buffer::from_slice(comm, topk_idx)?,
            topk_weights: Buffer::from_slice(comm, topk_weights)?,
        })
    }

    /// The stream that everything of this rank runs on.
    pub(super) fn stream(&self) -> Stream<'_> {
        self.stream.stream()
    }

    /// A group for this routing, with a handle. High throughput is eager: outputs are sized by what
    /// arrives.
    pub(super) fn open(&self, mode: Mode) -> Result<(Group, Handle)> {
        let group = self.group(mode, |config| config)?;
        let handle = self.handle(&group, mode)?;
        Ok((group, handle))
    }

    /// A group for this routing, with something else in its configuration.
    pub(super) fn group(
        &self,
        mode: Mode,
        change: impl FnOnce(GroupConfig) -> GroupConfig,
    ) -> Result<Group> {
        // Sizes that do not fit are refused by the rules of group creation.
        let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let config = GroupConfig::new()
            .algorithm(mode.algorithm())
            .num_experts(number(self.sizes.experts))
            .max_dispatch_tokens_per_rank(number(self.max_tokens))
            .max_token_bytes(number(self.sizes.hidden.saturating_mul(size_of::<bf16>())))
            .num_topk(number(self.sizes.top_k));
        Group::create(self.comm, &change(config))
    }

    /// A handle of a group, with everything as the library chooses it.
    pub(super) fn handle(&self, group: &Group, mode: Mode) -> Result<Handle> {
        group.init_handle(mode.layout(), &HandleConfig::new(), TopK::Auto, None)
    }

    /// This rank's tokens, `[tokens, hidden]`.
    pub(super) fn tokens(&self) -> Result<Tensor<'_>> {
        Tensor::new(&self.tokens, &[self.sizes.tokens_per_rank, self.sizes.hidden])
    }

    /// This rank's expert ids, `[tokens, top-k]`.
    pub(super) fn topk_idx(&self) -> Result<Tensor<'_>> {
        Tensor::new(&self.topk_idx, &[self.sizes.tokens_per_rank, self.sizes.top_k])
    }

    /// This rank's weights, `[tokens, top-k]`.
    pub(super) fn topk_weights(&self) -> Result<Tensor<'_>> {
        Tensor::new(&self.topk_weights, &[self.sizes.tokens_per_rank, self.sizes.top_k])
    }

    /// Memory for the combined tokens.
    pub(super) fn combined(&self) -> Result<Buffer<bf16>> {
        Buffer::zeroed(self.comm, self.sizes.tokens_per_rank * self.sizes.hidden)
    }

    /// Poisons that memory and makes it an output.
    fn outputs<'b>(&self, combined: &'b mut Buffer<bf16>) -> Result<CombineOutputs<'b>> {
        combined.fill_bytes(POISON, self.stream())?;
        let shape = [self.sizes.tokens_per_rank, self.sizes.hidden];
        Ok(CombineOutputs::new(TensorMut::new(combined, &shape)?))
    }

    /// Poisons memory, so that a row which nobody wrote shows.
    pub(super) fn poison<T: Element>(&self, buffer: &mut Buffer<T>) -> Result<()> {
        buffer.fill_bytes(POISON, self.stream())
    }

    /// Meets all ranks, then times a call until its work is done.
    pub(super) fn timed(&self, call: impl FnOnce() -> Result<()>) -> Result<Duration> {
        let one = Buffer::from_slice(self.comm, &[1_i32])?;
        let mut sum = Buffer::<i32>::zeroed(self.comm, 1)?;
        self.comm.all_reduce(&one, &mut sum, Reduction::Sum, self.stream())?;
        self.stream().synchronize(self.comm)?;
        let start = Instant::now();
        call()?;
        self.stream().synchronize(self.comm)?;
        Ok(start.elapsed())
    }

    /// A counter of one element as a number of rows.
    pub(super) fn count(&self, total: &Buffer<i32>) -> Result<usize> {
        let mut count = [0];
        total.read_into(&mut count, self.stream())?;
        Ok(usize::try_from(count[0]).unwrap_or(0))
    }

    /// Combines rows, and gives the round of which they are. `before` is the round before.
    pub(super) fn combine(
        &self,
        step: &mut Step<'_>,
        inputs: &CombineInputs<'_>,
        combined: &mut Buffer<bf16>,
        arrived: Arrived,
        before: Option<&Round>,
    ) -> Result<Round> {
        let mut outputs = self.outputs(combined)?;
        let config = CombineConfig::new();
        let combine = self.timed(|| step.combine(inputs, &mut outputs, &config, self.stream()))?;
        let combined = self.keep(combined, before)?;
        let Arrived { rows, counters, received, dispatch } = arrived;
        Ok(Round { rows, counters, combined, received, dispatch, combine })
    }

    /// The combined tokens of a round, shared with the round before if they have its bits.
    fn keep(&self, combined: &Buffer<bf16>, before: Option<&Round>) -> Result<Arc<Vec<bf16>>> {
        let combined = combined.to_vec(self.stream())?;
        let bits = |values: &[bf16], at: usize| values.get(at).map(|value| value.to_bits());
        let equal = |before: &&Arc<Vec<bf16>>| {
            (0..combined.len().max(before.len())).all(|at| bits(&combined, at) == bits(before, at))
        };
        let before = before.map(|round| &round.combined).filter(equal).map(Arc::clone);
        Ok(before.unwrap_or_else(|| Arc::new(combined)))
    }

    /// The experts that a received row names by their local numbers, with their weights, in order.
    pub(super) fn named_experts<I: Into<i64>>(
        &self,
        placement: &Placement,
        ids: impl Iterator<Item = I>,
        weights: &[f32],
    ) -> Vec<(GlobalExpert, f32)> {
        let named = ids.zip(weights).filter_map(|(id, weight)| {
            let local = LocalExpert(usize::try_from(id.into()).ok()?);
            Some((placement.global(self.comm.rank(), local)?, *weight))
        });
        named.collect()
    }

    /// The fault of `--corrupt`: inverts the upper byte of the first element of a received row.
    /// Sign and exponent lie there, so that no rounding hides it.
    pub(super) fn corrupt(&self, row: &mut [bf16]) {
        if let (true, Some(value)) = (self.corrupt, row.first_mut()) {
            *value = bf16::from_bits(value.to_bits() ^ 0xFF00);
        }
    }
}
