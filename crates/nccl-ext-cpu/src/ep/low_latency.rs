//! What a low-latency handle knows of a step: the ids of its tokens, and where they went.

use super::combine_ll;
use super::dispatch_ll;
use super::group::View;
use super::handle::{self, Ready};
use super::masked::Sources;
use super::receive_ll::{self, Offer};
use super::routing::NOWHERE;
use super::settings::Settings;
use super::topk::TopK;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::KEYS;

/// What a low-latency handle learns with each step.
#[derive(Default)]
pub(super) struct LowLatency {
    pub(super) topk: Option<TopK>,
    pub(super) sent: Sent,
    /// A staged send that waits for `ncclEpComplete`.
    pub(super) pending: Option<Pending>,
}

/// The receive half of a staged operation.
pub(super) enum Pending {
    Dispatch { operation: u64, key: [u64; KEYS], receive: receive_ll::Receive },
    Combine { operation: u64, key: [u64; KEYS], receive: combine_ll::Receive },
}

/// The last dispatch: what this rank sent, where that went, and how much it received.
#[derive(Default)]
pub(super) struct Sent {
    /// The dispatch's number on the group's line, the same on all ranks; 0 for none.
    pub(super) operation: u64,
    pub(super) entries: Entries,
    pub(super) slots: Slots,
    /// Rows received, by expert (expert-major) or source rank (rank-major).
    pub(super) received: Vec<u32>,
    /// Groups with masks: the same by source rank.
    pub(super) sources: Sources,
}

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
    pub(super) fn place_by_expert(&mut self, entries: &Entries, before: &[&Offer]) {
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

pub(super) fn zeros(counts: &mut Vec<u32>, len: usize) {
    counts.clear();
    counts.resize(len, 0);
}

/// The rank of a token's `k`-th expert, unless an earlier one has the same or there is none.
fn first_of_rank(token: &[u32], k: usize, local_experts: usize) -> Option<usize> {
    let rank = |expert: u32| (expert != NOWHERE).then(|| expert as usize / local_experts);
    let own = rank(token[k])?;
    token[..k].iter().all(|&other| rank(other) != Some(own)).then_some(own)
}

/// Remembers the caller's top-k table; it is read by dispatch and combine.
///
/// # Safety
/// The table stays valid and unchanged until the step's last combine.
pub(super) unsafe fn update(group: &View<'_>, ready: &Ready, topk: TopK) -> Outcome {
    // SAFETY: this function's contract.
    unsafe { topk.check(group.settings.experts, lowest_id(group.settings))? };
    let state = &mut *handle::lock(&ready.low);
    // Dispatch allocates nothing.
    let entries = topk.tokens * ready.topk;
    let Sent { entries: Entries { experts, .. }, slots, .. } = &mut state.sent;
    experts.reserve(entries.saturating_sub(experts.len()));
    slots.of_entry.reserve(entries.saturating_sub(slots.of_entry.len()));
    state.topk = Some(topk);
    Ok(())
}

/// Ids travel as 16 bits; below this one they alias experts (EP 4.16).
pub(super) fn lowest_id(settings: &Settings) -> i64 {
    settings.experts as i64 - 65536
}

/// Refuses any operation of a group in which a staged send is under way (EP 4.11).
pub(super) fn require_nothing_staged(staged: bool) -> Outcome {
    require(!staged, || {
        let rule = "between a staged send and its ncclEpComplete the group does nothing else";
        Refusal::usage(FailureClass::Trap, "send_only", rule, "ncclEpComplete first", "pending")
    })
}

/// The receive half of a staged operation, if there is one (EP 6.1).
///
/// # Safety
/// The tensors of the staged call are still valid.
pub(super) unsafe fn complete(group: &View<'_>, ready: &Ready) -> Outcome {
    let state = &mut *handle::lock(&ready.low);
    // SAFETY: this function's contract.
    unsafe {
        match &state.pending {
            None => return Ok(()),
            Some(Pending::Dispatch { operation, key, receive }) => {
                dispatch_ll::complete(group, &mut state.sent, *operation, *key, receive)?;
            }
            Some(Pending::Combine { operation, key, receive }) => {
                combine_ll::complete(group, &state.sent, *operation, *key, receive)?;
            }
        }
    }
    // On failure it stays, as the vendor's does.
    state.pending = None;
    handle::lock(group.staging).pending = false;
    Ok(())
}
