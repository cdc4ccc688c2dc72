//! The table of pairs.

use nccl_ep::{Algorithm, Layout, Result, bf16};

use super::rank::{Rank, Round};
use super::{ht_expert_major, ht_flat, ll_expert_major, ll_rank_major};
use crate::oracle::{self, Counts};
use crate::routing::Routing;

/// An algorithm with a layout, how a rank runs it and what must come out.
pub struct Pair {
    /// What the tool calls it.
    pub name: &'static str,
    /// How tokens travel.
    pub algorithm: Algorithm,
    /// How received rows lie.
    pub layout: Layout,
    /// Runs all rounds on one rank.
    pub run: fn(&Rank<'_>) -> Result<Vec<Round>>,
    /// The combined tokens of all ranks.
    pub combined: fn(&Routing) -> Vec<bf16>,
    /// Rows and counters.
    pub counts: fn(&Routing) -> Counts,
}

/// Every pair that the demo runs, in order.
pub static PAIRS: &[Pair] = &[
    Pair {
        name: "LL expert-major",
        algorithm: Algorithm::LowLatency,
        layout: Layout::ExpertMajor,
        run: ll_expert_major::run,
        combined: |routing| oracle::ll_expert_major(routing, oracle::expert_output),
        counts: oracle::by_expert,
    },
    Pair {
        name: "LL rank-major",
        algorithm: Algorithm::LowLatency,
        layout: Layout::RankMajor,
        run: ll_rank_major::run,
        combined: |routing| oracle::ll_rank_major(routing, oracle::weighted_sum),
        counts: oracle::by_source,
    },
    Pair {
        name: "HT flat",
        algorithm: Algorithm::HighThroughput,
        layout: Layout::Flat,
        run: ht_flat::run,
        combined: |routing| oracle::ht_flat(routing, oracle::weighted_sum),
        counts: oracle::by_rank,
    },
    Pair {
        name: "HT expert-major",
        algorithm: Algorithm::HighThroughput,
        layout: Layout::ExpertMajor,
        run: ht_expert_major::run,
        combined: ht_expert_major_combined,
        counts: oracle::by_expert,
    },
];

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
