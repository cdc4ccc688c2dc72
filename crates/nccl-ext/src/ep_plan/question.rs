//! What is asked.

use nccl_ep::plan::Setup;
use nccl_ep::{Algorithm, DataType, GroupConfig, Layout, TopK};

use super::models::Shape;

/// An algorithm with a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// What the tool calls it.
    pub name: &'static str,
    /// How tokens travel.
    pub algorithm: Algorithm,
    /// How received rows lie.
    pub layout: Layout,
}

const fn pair(name: &'static str, algorithm: Algorithm, layout: Layout) -> Pair {
    Pair { name, algorithm, layout }
}

/// Every pair that the library has.
pub const PAIRS: [Pair; 4] = [
    pair("LL expert-major", Algorithm::LowLatency, Layout::ExpertMajor),
    pair("LL rank-major", Algorithm::LowLatency, Layout::RankMajor),
    pair("HT flat", Algorithm::HighThroughput, Layout::Flat),
    pair("HT expert-major", Algorithm::HighThroughput, Layout::ExpertMajor),
];

/// A model on ranks, with everything that was left open filled in.
#[derive(Debug, Clone)]
pub struct Question {
    /// The model's name, where it was asked for by name.
    pub model: Option<&'static str>,
    /// Its shape.
    pub shape: Shape,
    /// Ranks.
    pub ranks: u32,
    /// Most tokens that a rank dispatches in one step.
    pub tokens: u32,
    /// Their element type.
    pub data_type: DataType,
    /// Bytes of one of them.
    pub row_bytes: u32,
    /// HT: the receive budget; eager without one.
    pub max_recv: Option<u32>,
    /// Streaming multiprocessors of the device.
    pub sms: u32,
    /// The only algorithm asked for.
    pub algorithm: Option<Algorithm>,
    /// The only layout asked for.
    pub layout: Option<Layout>,
}

impl Question {
    /// The pairs that are asked for.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        PAIRS.into_iter().filter(|pair| {
            self.algorithm.is_none_or(|algorithm| algorithm == pair.algorithm)
                && self.layout.is_none_or(|layout| layout == pair.layout)
        })
    }

    /// Whether the pair's group leaves its top-k open. Flat receives a token once, whatever it is
    /// routed to; without a top-k an eager group has room for just that, and else for top-k times
    /// as many rows.
    #[must_use]
    pub fn leaves_topk_open(&self, pair: Pair) -> bool {
        let high = pair.algorithm == Algorithm::HighThroughput;
        high && self.max_recv.is_none() && pair.layout == Layout::Flat
    }

    /// The configuration that a program would give for a pair.
    #[must_use]
    pub fn setup(&self, pair: Pair) -> Setup {
        let high = pair.algorithm == Algorithm::HighThroughput;
        let budget = self.max_recv.filter(|_| high);
        let group = GroupConfig::new()
            .algorithm(pair.algorithm)
            .num_experts(self.shape.experts)
            .max_dispatch_tokens_per_rank(self.tokens)
            .max_recv_tokens_per_rank(budget.unwrap_or(0))
            .max_token_bytes(self.row_bytes)
            .num_topk(if self.leaves_topk_open(pair) { 0 } else { self.shape.topk });
        Setup::new(group, self.ranks, self.shape.hidden)
            .layout(pair.layout)
            .topk(TopK::N(self.shape.topk))
            .data_type(self.data_type)
            .device_sms(self.sms)
    }
}
