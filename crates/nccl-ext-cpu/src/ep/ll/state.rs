//! What a low-latency handle knows of a step: the ids of its tokens, and where they went.

use std::sync::Mutex;

use nccl_ext_core::raw::cudaStream_t;

use super::destination::{CombineDestination, DispatchDestination};
use super::entries::{Entries, Slots};
use crate::ep::staging::Staging;
use crate::ep::tensor::TopK;
use crate::lock::lock;
use crate::queue;
use crate::refusal::Outcome;
use crate::world::KEYS;

/// What a low-latency handle learns with each step. Streams' work, which may run when the call has
/// long returned, shares it.
#[derive(Default)]
pub(crate) struct LowLatency {
    /// Known as soon as a call has returned.
    pub(super) called: Mutex<Called>,
    /// Known when the work has run. Its lock is held while ranks meet, so no call takes it.
    pub(super) work: Mutex<Work>,
    memory: Option<HandleMemory>,
}

/// Handle memory of the caller's, or of the caller's allocator. The vendor's kernels keep there what
/// [`Work`] has here, so only who uses it after whom matters.
struct HandleMemory {
    data: *mut u8,
    bytes: usize,
}

// SAFETY: nothing is read or written through it.
unsafe impl Send for HandleMemory {}
// SAFETY: as above.
unsafe impl Sync for HandleMemory {}

impl LowLatency {
    /// A handle with so many bytes of such memory.
    pub(crate) fn with_memory(data: *mut u8, bytes: usize) -> Self {
        Self { memory: Some(HandleMemory { data, bytes }), ..Self::default() }
    }

    /// The running work notes where rows come from.
    pub(super) fn declare_written(&self) -> Outcome {
        self.memory.as_ref().map_or(Ok(()), |memory| queue::write(memory.data, memory.bytes))
    }

    /// The running work looks where rows came from.
    pub(super) fn declare_read(&self) -> Outcome {
        self.memory.as_ref().map_or(Ok(()), |memory| queue::read(memory.data, memory.bytes))
    }
}

/// What the arguments of the next call are checked against.
#[derive(Default)]
pub(super) struct Called {
    pub(super) topk: Option<TopK>,
    /// Whether a dispatch was ever made.
    pub(super) dispatched: bool,
    /// A staged send that waits for `ncclEpComplete`.
    pub(super) pending: Option<Pending>,
}

impl Called {
    /// Leaves the receive half of a staged operation to `ncclEpComplete`.
    pub(super) fn postpone(
        &mut self,
        staging: &Mutex<Staging>,
        stream: cudaStream_t,
        receive: Receive,
    ) {
        self.pending = Some(Pending { stream, receive });
        lock(staging).pending = true;
    }
}

/// The receive half of a staged operation, and the stream of its send, on which it will run.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) stream: cudaStream_t,
    pub(super) receive: Receive,
}

// SAFETY: the caller keeps the stream until the operation is complete, from whatever thread that is
// called.
unsafe impl Send for Pending {}

#[derive(Clone, Copy)]
pub(super) enum Receive {
    Dispatch(DispatchDestination),
    Combine(CombineDestination),
}

/// What the last operations gave.
#[derive(Default)]
pub(super) struct Work {
    pub(super) sent: LastDispatch,
    /// The send that the next receive half belongs to.
    pub(super) staged: Option<Staged>,
}

/// A send whose receive half has not run.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    pub(super) operation: u64,
    pub(super) key: [u64; KEYS],
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
