//! Tokens of all ranks with the experts that they go to.

use nccl_ext_core::bf16;

/// Most experts. Low latency carries their ids in 16 bits, and the demo marks rows with these.
pub(super) const MAX_EXPERTS: usize = 65535;

/// The sizes of a recording. Each is at least 1, and the experts divide evenly over the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Ranks that dispatch and own experts.
    pub ranks: usize,
    /// Tokens of each rank.
    pub tokens_per_rank: usize,
    /// Elements of a token.
    pub hidden: usize,
    /// Experts that a token names, -1 counted.
    pub top_k: usize,
    /// Experts of the model.
    pub experts: usize,
}

impl Sizes {
    /// Tokens of all ranks.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.ranks * self.tokens_per_rank
    }

    /// Experts of each rank: rank `r` owns the `r`-th block.
    #[must_use]
    pub fn local_experts(&self) -> usize {
        self.experts / self.ranks
    }
}

/// A recording that keeps every rule of its file.
#[derive(Debug, Clone)]
pub struct Routing {
    /// The file as the user named it, or the name of the recording inside the program.
    pub name: String,
    /// Whether it is the recording inside the program.
    pub embedded: bool,
    /// Its sizes.
    pub sizes: Sizes,
    /// `[tokens, hidden]`, rank by rank.
    pub tokens: Vec<bf16>,
    /// `[tokens, top_k]`: experts of the whole model, negative for none, no expert twice in a row.
    pub topk_idx: Vec<i64>,
    /// `[tokens, top_k]`: weight of each choice.
    pub topk_weights: Vec<f32>,
}

impl Routing {
    /// One token's row; tokens count over all ranks.
    #[must_use]
    pub fn row(&self, token: usize) -> &[bf16] {
        part(&self.tokens, token, self.sizes.hidden)
    }

    /// One token's experts, negative for none.
    #[must_use]
    pub fn ids(&self, token: usize) -> &[i64] {
        part(&self.topk_idx, token, self.sizes.top_k)
    }

    /// The weights of one token's choices.
    #[must_use]
    pub fn weights(&self, token: usize) -> &[f32] {
        part(&self.topk_weights, token, self.sizes.top_k)
    }

    /// The tokens, ids and weights of one rank.
    #[must_use]
    pub fn of_rank(&self, rank: usize) -> (&[bf16], &[i64], &[f32]) {
        let Sizes { tokens_per_rank, hidden, top_k, .. } = self.sizes;
        (
            part(&self.tokens, rank, tokens_per_rank * hidden),
            part(&self.topk_idx, rank, tokens_per_rank * top_k),
            part(&self.topk_weights, rank, tokens_per_rank * top_k),
        )
    }

    /// The first rank that receives anything, if any does.
    #[must_use]
    pub fn first_receiver(&self) -> Option<usize> {
        let experts = self.topk_idx.iter().filter_map(|id| usize::try_from(*id).ok());
        experts.min().map(|expert| expert / self.sizes.local_experts())
    }

    /// How many tokens name each expert.
    #[must_use]
    pub fn loads(&self) -> Vec<usize> {
        let mut loads = vec![0; self.sizes.experts];
        for id in &self.topk_idx {
            if let Some(load) = usize::try_from(*id).ok().and_then(|id| loads.get_mut(id)) {
                *load += 1;
            }
        }
        loads
    }
}

fn part<T>(all: &[T], index: usize, length: usize) -> &[T] {
    &all[index * length..][..length]
}
