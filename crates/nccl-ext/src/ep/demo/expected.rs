//! What the oracle says of a mode.

use nccl_ep::{Algorithm, Mode, bf16};

use super::received::Received;
use crate::oracle::{self, Counts, Zones};
use crate::routing::Routing;

/// What the oracle says of a mode, for all ranks.
pub(super) struct Expected {
    pub(super) combined: Vec<bf16>,
    pub(super) counts: Counts,
    pub(super) received: Vec<Received>,
    /// Whether received rows have an order that the library promises.
    pub(super) ordered: bool,
}

impl Expected {
    pub(super) fn new(mode: Mode, routing: &Routing) -> Self {
        let received = |rank| Received::expected(routing, &arrivals(mode, routing, rank));
        Self {
            combined: combined(mode, routing),
            counts: counts(mode, routing),
            received: (0..routing.sizes.ranks).map(received).collect(),
            ordered: mode.algorithm() == Algorithm::HighThroughput,
        }
    }
}

/// The combined tokens of all ranks.
fn combined(mode: Mode, routing: &Routing) -> Vec<bf16> {
    match mode {
        Mode::LowLatencyExpertMajor => oracle::ll_expert_major(routing, oracle::expert_output),
        Mode::LowLatencyRankMajor => oracle::ll_rank_major(routing, oracle::weighted_sum),
        Mode::HighThroughputFlat => oracle::ht_flat(routing, oracle::weighted_sum),
        Mode::HighThroughputExpertMajor => ht_expert_major_combined(routing),
    }
}

/// What a rank receives.
fn arrivals(mode: Mode, routing: &Routing, rank: usize) -> Zones {
    match mode {
        Mode::LowLatencyExpertMajor => oracle::ll_expert_arrivals(routing, rank),
        Mode::LowLatencyRankMajor => oracle::ll_source_arrivals(routing, rank),
        Mode::HighThroughputFlat => oracle::ht_rank_arrivals(routing, rank),
        Mode::HighThroughputExpertMajor => oracle::ht_expert_arrivals(routing, rank),
    }
}

/// Rows and counters of all ranks.
fn counts(mode: Mode, routing: &Routing) -> Counts {
    match mode {
        Mode::LowLatencyRankMajor => oracle::by_source(routing),
        Mode::HighThroughputFlat => oracle::by_rank(routing),
        Mode::LowLatencyExpertMajor | Mode::HighThroughputExpertMajor => oracle::by_expert(routing),
    }
}

/// The caller weights each row; in which steps they are added depends on how the library works
/// inside, which the environment can choose.
fn ht_expert_major_combined(routing: &Routing) -> Vec<bf16> {
    let row = |value, (expert, weight), h| weight * oracle::expert_output(value, expert, h);
    let dup = std::env::var("NCCL_EP_HT_EM_NVLINK_DUP").unwrap_or_default();
    if matches!(&*dup.to_ascii_lowercase(), "1" | "on" | "true") {
        oracle::ht_expert_major_once(routing, row)
    } else {
        oracle::ht_expert_major(routing, row)
    }
}
