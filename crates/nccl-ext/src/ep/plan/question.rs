//! What is asked.

use nccl_ep::plan::Setup;
use nccl_ep::{Algorithm, DataType, GroupConfig, Layout, Mode, TopK};

use super::models::Shape;

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
    /// The modes that are asked for.
    pub fn modes(&self) -> impl Iterator<Item = Mode> {
        Mode::ALL.iter().copied().filter(|mode| {
            self.algorithm.is_none_or(|algorithm| algorithm == mode.algorithm())
                && self.layout.is_none_or(|layout| layout == mode.layout())
        })
    }

    /// Whether the mode's group leaves its top-k open. Flat receives a token once, whatever it is
    /// routed to; without a top-k an eager group has room for just that, and else for top-k times
    /// as many rows.
    #[must_use]
    pub fn leaves_topk_open(&self, mode: Mode) -> bool {
        mode == Mode::HighThroughputFlat && self.max_recv.is_none()
    }

    /// The configuration that a program would give for a mode.
    #[must_use]
    pub fn setup(&self, mode: Mode) -> Setup {
        let high = mode.algorithm() == Algorithm::HighThroughput;
        let budget = self.max_recv.filter(|_| high);
        let group = GroupConfig::new()
            .algorithm(mode.algorithm())
            .num_experts(self.shape.experts)
            .max_dispatch_tokens_per_rank(self.tokens)
            .max_recv_tokens_per_rank(budget.unwrap_or(0))
            .max_token_bytes(self.row_bytes)
            .num_topk(if self.leaves_topk_open(mode) { 0 } else { self.shape.topk });
        Setup::new(group, self.ranks, self.shape.hidden)
            .layout(mode.layout())
            .topk(TopK::N(self.shape.topk))
            .data_type(self.data_type)
            .device_sms(self.sms)
    }
}
