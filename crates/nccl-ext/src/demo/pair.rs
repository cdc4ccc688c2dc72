//! The table of pairs.

use nccl_ep::{Algorithm, Layout, Result, bf16};

use super::rank::{Rank, Round};
use super::{ht_expert_major, ht_flat, ll_expert_major, ll_rank_major};
use crate::failure::InputError;
use crate::oracle::{self, Counts, Zones};
use crate::routing::Routing;

/// An algorithm with a layout, how a rank runs it and what must come out.
#[derive(Debug)]
pub struct Pair {
    /// What the tool calls it.
    pub name: &'static str,
    /// How tokens travel.
    pub algorithm: Algorithm,
    /// How received rows lie.
    pub layout: Layout,
    /// Whether received rows have an order that the library promises.
    pub ordered: bool,
    /// Runs all rounds on one rank.
    pub run: fn(&Rank<'_>) -> Result<Vec<Round>>,
    /// The combined tokens of all ranks.
    pub combined: fn(&Routing) -> Vec<bf16>,
    /// What each rank receives.
    pub received: fn(&Routing, usize) -> Zones,
    /// Rows and counters.
    pub counts: fn(&Routing) -> Counts,
}

/// Every pair that the demo runs, in order.
pub static PAIRS: &[Pair] = &[
    Pair {
        name: "LL expert-major",
        algorithm: Algorithm::LowLatency,
        layout: Layout::ExpertMajor,
        ordered: false,
        run: ll_expert_major::run,
        combined: |routing| oracle::ll_expert_major(routing, oracle::expert_output),
        received: oracle::ll_expert_arrivals,
        counts: oracle::by_expert,
    },
    Pair {
        name: "LL rank-major",
        algorithm: Algorithm::LowLatency,
        layout: Layout::RankMajor,
        ordered: false,
        run: ll_rank_major::run,
        combined: |routing| oracle::ll_rank_major(routing, oracle::weighted_sum),
        received: oracle::ll_source_arrivals,
        counts: oracle::by_source,
    },
    Pair {
        name: "HT flat",
        algorithm: Algorithm::HighThroughput,
        layout: Layout::Flat,
        ordered: true,
        run: ht_flat::run,
        combined: |routing| oracle::ht_flat(routing, oracle::weighted_sum),
        received: oracle::ht_rank_arrivals,
        counts: oracle::by_rank,
    },
    Pair {
        name: "HT expert-major",
        algorithm: Algorithm::HighThroughput,
        layout: Layout::ExpertMajor,
        ordered: true,
        run: ht_expert_major::run,
        combined: ht_expert_major_combined,
        received: oracle::ht_expert_arrivals,
        counts: oracle::by_expert,
    },
];

/// The pairs that a list such as `LL expert-major, HT flat` names, in the demo's order.
///
/// # Errors
/// [`InputError`] for a name that is none.
pub fn named(list: &str) -> Result<Vec<&'static Pair>, InputError> {
    let names: Vec<_> = list.split(',').map(str::trim).collect();
    let is = |name: &str, pair: &Pair| pair.name.eq_ignore_ascii_case(name);
    let unknown = |name: &&&str| !PAIRS.iter().any(|pair| is(name, pair));
    if let Some(name) = names.iter().find(unknown) {
        let known: Vec<_> = PAIRS.iter().map(|pair| pair.name).collect();
        return Err(InputError {
            file: "demo".into(),
            item: "--pairs",
            rule: "a pair is an algorithm with a layout",
            expected: known.join(", "),
            found: format!("{name:?}"),
        });
    }
    Ok(PAIRS.iter().filter(|pair| names.iter().any(|name| is(name, pair))).collect())
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
