//! How many rows each rank receives, and what the library's counters say.

use super::{choices, choices_by_rank};
use crate::routing::Routing;

/// Rows and counters of every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Rows that each rank receives.
    pub rows: Vec<usize>,
    /// Counters of each rank.
    pub counters: Vec<Vec<i64>>,
}

impl Counts {
    fn new(routing: &Routing, counters: usize) -> Self {
        let ranks = routing.sizes.ranks;
        Self { rows: vec![0; ranks], counters: vec![vec![0; counters]; ranks] }
    }
}

/// Expert-major: a row for each token of each expert, counted by expert.
#[must_use]
pub fn by_expert(routing: &Routing) -> Counts {
    let local = routing.sizes.local_experts();
    let mut counts = Counts::new(routing, local);
    for token in 0..routing.sizes.tokens() {
        for (expert, _) in choices(routing, token) {
            counts.rows[expert / local] += 1;
            counts.counters[expert / local][expert % local] += 1;
        }
    }
    counts
}

/// Flat: a row for each token that names an expert of the rank, counted by expert.
#[must_use]
pub fn by_rank(routing: &Routing) -> Counts {
    let local = routing.sizes.local_experts();
    let mut counts = Counts::new(routing, local);
    for token in 0..routing.sizes.tokens() {
        for experts in choices_by_rank(routing, token) {
            counts.rows[experts[0].0 / local] += 1;
            for (expert, _) in experts {
                counts.counters[expert / local][expert % local] += 1;
            }
        }
    }
    counts
}

/// Rank-major: a row for each token that names an expert of the rank, counted by source rank.
#[must_use]
pub fn by_source(routing: &Routing) -> Counts {
    let local = routing.sizes.local_experts();
    let mut counts = Counts::new(routing, routing.sizes.ranks);
    for token in 0..routing.sizes.tokens() {
        for experts in choices_by_rank(routing, token) {
            let rank = experts[0].0 / local;
            counts.rows[rank] += 1;
            counts.counters[rank][token / routing.sizes.tokens_per_rank] += 1;
        }
    }
    counts
}
