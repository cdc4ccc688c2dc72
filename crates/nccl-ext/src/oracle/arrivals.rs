//! The rows that a rank receives, with what comes with them.

use super::{choices, choices_by_rank};
use crate::routing::Routing;

/// A row: whose it is, and the weights and ids that arrive beside it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arrival {
    /// The token, counted over all ranks.
    pub token: usize,
    /// Weights.
    pub weights: Vec<f32>,
    /// Ids, in the receiver's numbering; -1 for none.
    pub ids: Vec<i64>,
}

/// Rows of each zone, in the order of tokens.
pub type Zones = Vec<Vec<Arrival>>;

/// Low latency, expert-major: a zone for each expert of the rank, rows alone.
#[must_use]
pub fn ll_expert_arrivals(routing: &Routing, rank: usize) -> Zones {
    let first = rank * routing.sizes.local_experts();
    let mut zones = vec![Vec::new(); routing.sizes.local_experts()];
    for token in 0..routing.sizes.tokens() {
        for (expert, _) in choices(routing, token) {
            if let Some(zone) = expert.checked_sub(first).and_then(|local| zones.get_mut(local)) {
                zone.push(Arrival { token, ..Arrival::default() });
            }
        }
    }
    zones
}

/// Low latency, rank-major: a zone for each source rank. All weights of the token come along, and
/// the ids of this rank's experts, in the token's own order.
#[must_use]
pub fn ll_source_arrivals(routing: &Routing, rank: usize) -> Zones {
    let local = routing.sizes.local_experts() as i64;
    let first = rank as i64 * local;
    let mut zones = vec![Vec::new(); routing.sizes.ranks];
    for token in 0..routing.sizes.tokens() {
        let owned = |id: &i64| if (first..first + local).contains(id) { id - first } else { -1 };
        let ids: Vec<_> = routing.ids(token).iter().map(owned).collect();
        if ids.iter().any(|id| *id >= 0) {
            let weights = routing.weights(token).to_vec();
            let source = token / routing.sizes.tokens_per_rank;
            zones[source].push(Arrival { token, weights, ids });
        }
    }
    zones
}

/// High throughput, flat: one zone. The rank's experts come along in ascending order, each with its
/// weight.
#[must_use]
pub fn ht_rank_arrivals(routing: &Routing, rank: usize) -> Zones {
    let first = rank * routing.sizes.local_experts();
    let mut zone = Vec::new();
    for token in 0..routing.sizes.tokens() {
        for experts in choices_by_rank(routing, token) {
            if experts[0].0 / routing.sizes.local_experts() == rank {
                let mut weights: Vec<_> = experts.iter().map(|(_, weight)| *weight).collect();
                let mut ids: Vec<_> = experts.iter().map(|(id, _)| (id - first) as i64).collect();
                weights.resize(routing.sizes.top_k, 0.0);
                ids.resize(routing.sizes.top_k, -1);
                zone.push(Arrival { token, weights, ids });
            }
        }
    }
    vec![zone]
}

/// High throughput, expert-major: a zone for each expert of the rank, each row with its weight.
#[must_use]
pub fn ht_expert_arrivals(routing: &Routing, rank: usize) -> Zones {
    let first = rank * routing.sizes.local_experts();
    let mut zones = vec![Vec::new(); routing.sizes.local_experts()];
    for token in 0..routing.sizes.tokens() {
        for (expert, weight) in choices_by_rank(routing, token).into_iter().flatten() {
            if let Some(zone) = expert.checked_sub(first).and_then(|local| zones.get_mut(local)) {
                zone.push(Arrival { token, weights: vec![weight], ids: Vec::new() });
            }
        }
    }
    zones
}
