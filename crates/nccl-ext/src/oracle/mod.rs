//! What dispatch and combine must give, from the routing alone.
//!
//! Plain loops over the file's tokens, in the order and with the rounding that the library
//! promises. Nothing here calls `nccl-ep` or a backend: what a test compares with must not share
//! the code that it tests.

mod arrivals;
mod counts;
mod distance;

pub use arrivals::{
    Arrival, Zones, ht_expert_arrivals, ht_rank_arrivals, ll_expert_arrivals, ll_source_arrivals,
};
pub use counts::{Counts, by_expert, by_rank, by_source};
pub use distance::{distance, largest_difference};

use nccl_ext_core::bf16;

use crate::routing::Routing;
use crate::rows;

/// An expert of the whole model and the weight that a token gave it.
pub type Choice = (usize, f32);

/// What expert `expert` makes of element `h`: half as much again where bit `h mod 16` of the
/// expert's number is set.
///
/// So each expert writes its own number into every row, in binary: any other expert changes at
/// least one element in sixteen, and by half of what the expert contributes.
#[must_use]
pub fn expert_output(value: f32, expert: usize, h: usize) -> f32 {
    let marked = (expert >> (h % 16)) & 1 == 1;
    rounded(if marked { value * 1.5 } else { value }).to_f32()
}

/// The sum over a rank's experts that the demo hands to combine where the caller applies the
/// weights and sums: product and sum each rounded to fp32, the whole then to bf16 by the caller.
#[must_use]
pub fn weighted_sum(value: f32, experts: &[Choice], h: usize) -> f32 {
    let mut sum = 0.0_f32;
    for &(expert, weight) in experts {
        sum += weight * expert_output(value, expert, h);
    }
    sum
}

/// Low latency, expert-major: each expert's row comes back, and combine multiplies it with its
/// weight and adds, both in one rounding, in the order of the token's choices.
pub fn ll_expert_major(
    routing: &Routing,
    expert: impl Fn(f32, usize, usize) -> f32 + Sync,
) -> Vec<bf16> {
    each_element(routing, choices, |value, choices, h| {
        let mut sum = 0.0_f32;
        for &(id, weight) in choices {
            sum = expert(value, id, h).mul_add(weight, sum);
        }
        sum
    })
}

/// Low latency, rank-major: each rank gives one row, and combine adds them in the order in which
/// the token first names the ranks.
pub fn ll_rank_major(
    routing: &Routing,
    rank_row: impl Fn(f32, &[Choice], usize) -> f32 + Sync,
) -> Vec<bf16> {
    let ranks = |routing: &Routing, token| {
        let mut ranks: Vec<(usize, Vec<Choice>)> = Vec::new();
        for choice in choices(routing, token) {
            let rank = choice.0 / routing.sizes.local_experts();
            match ranks.iter_mut().find(|(known, _)| *known == rank) {
                Some((_, experts)) => experts.push(choice),
                None => ranks.push((rank, vec![choice])),
            }
        }
        ranks
    };
    each_element(routing, ranks, |value, ranks, h| {
        let mut sum = 0.0_f32;
        for (_, experts) in ranks {
            sum += rounded(rank_row(value, experts, h)).to_f32();
        }
        sum
    })
}

/// High throughput, flat: each rank gives one row, made of its experts in ascending order, and
/// combine adds them in the order of ranks.
pub fn ht_flat(
    routing: &Routing,
    rank_row: impl Fn(f32, &[Choice], usize) -> f32 + Sync,
) -> Vec<bf16> {
    each_element(routing, choices_by_rank, |value, ranks, h| {
        let mut sum = 0.0_f32;
        for experts in ranks {
            sum += rounded(rank_row(value, experts, h)).to_f32();
        }
        sum
    })
}

/// High throughput, expert-major: each rank's rows are added in the order of experts and rounded
/// to bf16 before they travel, then combine adds the ranks' sums in the order of ranks.
pub fn ht_expert_major(
    routing: &Routing,
    expert_row: impl Fn(f32, Choice, usize) -> f32 + Sync,
) -> Vec<bf16> {
    each_element(routing, choices_by_rank, |value, ranks, h| {
        let mut sum = 0.0_f32;
        for experts in ranks {
            let mut part = 0.0_f32;
            for &choice in experts {
                part += rounded(expert_row(value, choice, h)).to_f32();
            }
            sum += rounded(part).to_f32();
        }
        sum
    })
}

/// High throughput, expert-major, when `NCCL_EP_HT_EM_NVLINK_DUP` is on: all rows are added in the
/// order of experts and rounded once.
pub fn ht_expert_major_once(
    routing: &Routing,
    expert_row: impl Fn(f32, Choice, usize) -> f32 + Sync,
) -> Vec<bf16> {
    each_element(routing, choices_by_rank, |value, ranks, h| {
        let mut sum = 0.0_f32;
        for &choice in ranks.iter().flatten() {
            sum += rounded(expert_row(value, choice, h)).to_f32();
        }
        sum
    })
}

/// Computes every element of every token, from what is known of the token's routing.
fn each_element<R>(
    routing: &Routing,
    route: impl Fn(&Routing, usize) -> R + Sync,
    element: impl Fn(f32, &R, usize) -> f32 + Sync,
) -> Vec<bf16> {
    let mut combined = vec![bf16::ZERO; routing.tokens.len()];
    rows::each(rows::threads(), &mut combined, routing.sizes.hidden, |token, row| {
        let route = route(routing, token);
        for (h, (result, value)) in row.iter_mut().zip(routing.row(token)).enumerate() {
            *result = rounded(element(value.to_f32(), &route, h));
        }
    });
    combined
}

/// A token's experts in its own order.
fn choices(routing: &Routing, token: usize) -> Vec<Choice> {
    let mut choices = Vec::new();
    for (&id, &weight) in routing.ids(token).iter().zip(routing.weights(token)) {
        if let Ok(expert) = usize::try_from(id) {
            choices.push((expert, weight));
        }
    }
    choices
}

/// A token's experts by rank, both ascending. Of an expert named twice the first stays.
fn choices_by_rank(routing: &Routing, token: usize) -> Vec<Vec<Choice>> {
    let mut sorted = choices(routing, token);
    sorted.sort_by_key(|(expert, _)| *expert);
    sorted.dedup_by_key(|(expert, _)| *expert);
    let rank = |choice: &Choice| choice.0 / routing.sizes.local_experts();
    sorted.chunk_by(|a, b| rank(a) == rank(b)).map(<[Choice]>::to_vec).collect()
}

/// To the nearest bf16, ties to even. Every NaN has the one pattern that the library gives.
#[must_use]
pub fn rounded(value: f32) -> bf16 {
    if value.is_nan() { bf16::from_bits(0x7FFF) } else { bf16::from_f32(value) }
}

#[cfg(test)]
mod tests;
