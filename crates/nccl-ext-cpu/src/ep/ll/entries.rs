//! The entries of a step's top-k table, and the slots of their rows.

use crate::ep::slots::{NOWHERE, zeros};
use crate::ep::staging::DispatchSource;

/// The entries of a step's top-k table, and how many there are for each expert.
#[derive(Default)]
pub(super) struct Entries {
    /// [`NOWHERE`] for no expert.
    pub(super) experts: Vec<u32>,
    pub(super) per_expert: Vec<u32>,
}

impl Entries {
    /// Every id is below the number of experts.
    pub(super) fn build(&mut self, ids: impl Iterator<Item = i64>, experts: usize) {
        self.experts.clear();
        self.experts.extend(ids.map(|id| u32::try_from(id).unwrap_or(NOWHERE)));
        zeros(&mut self.per_expert, experts);
        for &expert in &self.experts {
            if let Some(count) = self.per_expert.get_mut(expert as usize) {
                *count += 1;
            }
        }
    }
}

/// Each entry's slot on the rank that receives it: among its expert's rows (expert-major), or, at
/// the first entry of a token for a rank, among this rank's rows there (rank-major). [`NOWHERE`]
/// for entries without a row of their own.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) of_entry: Vec<u32>,
    /// Next slot of each expert or rank, while slots are handed out.
    next: Vec<u32>,
}

impl Slots {
    /// An expert's rows come in the order of source rank and token.
    pub(super) fn place_by_expert(&mut self, entries: &Entries, before: &[&DispatchSource]) {
        zeros(&mut self.next, entries.per_expert.len());
        for peer in before {
            let counts = peer.per_expert(self.next.len());
            self.next.iter_mut().zip(counts).for_each(|(next, count)| *next += count);
        }
        self.of_entry.clear();
        for &expert in &entries.experts {
            let slot = self.next.get_mut(expert as usize).map(take);
            self.of_entry.push(slot.unwrap_or(NOWHERE));
        }
    }

    /// A source's rows come in the order of its tokens.
    pub(super) fn place_by_rank(&mut self, entries: &Entries, topk: usize, local_experts: usize) {
        zeros(&mut self.next, entries.per_expert.len() / local_experts);
        self.of_entry.clear();
        for token in entries.experts.chunks_exact(topk) {
            for k in 0..topk {
                let rank = first_of_rank(token, k, local_experts);
                let slot = rank.map(|rank| take(&mut self.next[rank]));
                self.of_entry.push(slot.unwrap_or(NOWHERE));
            }
        }
    }
}

fn take(next: &mut u32) -> u32 {
    *next += 1;
    *next - 1
}

/// The rank of a token's `k`-th expert, unless an earlier one has the same or there is none.
fn first_of_rank(token: &[u32], k: usize, local_experts: usize) -> Option<usize> {
    let rank = |expert: u32| (expert != NOWHERE).then(|| expert as usize / local_experts);
    let own = rank(token[k])?;
    token[..k].iter().all(|&other| rank(other) != Some(own)).then_some(own)
}
