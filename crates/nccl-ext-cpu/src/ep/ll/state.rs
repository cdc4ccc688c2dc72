//! What a low-latency handle knows of a step: the ids of its tokens, and where they went.

use std::sync::Mutex;

use super::destination::{CombineDestination, DispatchDestination};
use super::entries::{Entries, Slots};
use crate::ep::staging::Staging;
use crate::ep::tensor::TopK;
use crate::lock::lock;
use crate::world::KEYS;

/// What a low-latency handle learns with each step.
#[derive(Default)]
pub(crate) struct LowLatency {
    pub(super) topk: Option<TopK>,
    pub(super) sent: LastDispatch,
    /// A staged send that waits for `ncclEpComplete`.
    pub(super) pending: Option<Pending>,
}

impl LowLatency {
    /// Leaves the receive half of a staged operation to `ncclEpComplete`.
    pub(super) fn postpone(&mut self, staging: &Mutex<Staging>, pending: Pending) {
        self.pending = Some(pending);
        lock(staging).pending = true;
    }
}

/// The receive half of a staged operation.
pub(super) enum Pending {
    Dispatch { operation: u64, key: [u64; KEYS], destination: DispatchDestination },
    Combine { operation: u64, key: [u64; KEYS], destination: CombineDestination },
}

/// The last dispatch: what this rank sent, where that went, and how much it received.
#[derive(Default)]
pub(super) struct LastDispatch {
    /// The dispatch's number in the group's sequence, the same on all ranks; 0 for none.
    pub(super) operation: u64,
    pub(super) entries: Entries,
    pub(super) slots: Slots,
    /// Rows received, by expert (expert-major) or source rank (rank-major).
    pub(super) received: Vec<u32>,
    /// Groups with masks: the same by source rank.
    pub(super) sources: ReceivedFrom,
}

/// What a rank has received from each of the others, to be given back.
#[derive(Default)]
pub(super) struct ReceivedFrom {
    /// The sender's number of the dispatch; 0 when nothing came.
    pub(super) dispatches: Vec<u64>,
    /// Rows by source, then expert (expert-major); rows by source (rank-major).
    pub(super) counts: Vec<u32>,
}
