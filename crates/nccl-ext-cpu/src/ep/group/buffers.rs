//! What all operations of a group share on a rank (EP 4.11): communication buffers, and the counters
//! of epochs and flags.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock::lock;
use crate::queue::Block;
use crate::refusal::Outcome;
use crate::world::Member;

/// How often work that waits for its turn looks whether the world has failed, of which the turns
/// hear nothing.
const FAILURE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The buffers and counters, as far as it matters who uses them after whom.
pub(crate) struct SharedBuffers {
    block: Block,
    /// Bytes that the low-latency buffer has grown to (EP 3.4).
    pub(super) bytes: Mutex<u128>,
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Default)]
struct Turns {
    given: u64,
    /// Those whose work has not begun.
    waiting: BTreeSet<u64>,
}

/// What an operation does with the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uses {
    Reads,
    Writes,
}

impl SharedBuffers {
    pub(super) fn new() -> Self {
        Self {
            block: Block::new("the buffers that the operations of an EP group share", 1),
            bytes: Mutex::default(),
            turns: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

/// The place of a call among the calls of its group.
///
/// Operations whose streams are in no order may run in any; they begin in the order of the calls all
/// the same. So the second of two such calls is always the one that finds the race, and not a later
/// consequence of it.
pub(super) struct Turn {
    shared: Arc<SharedBuffers>,
    number: u64,
}

impl Turn {
    /// The next one.
    pub(super) fn take(shared: &Arc<SharedBuffers>) -> Self {
        let mut turns = lock(&shared.turns);
        turns.given += 1;
        let number = turns.given;
        turns.waiting.insert(number);
        drop(turns);
        Self { shared: Arc::clone(shared), number }
    }

    /// Waits for the earlier ones, and takes the buffers.
    pub(super) fn begin(self, member: &Member, uses: Uses) -> Outcome {
        let shared = &self.shared;
        let mut turns = lock(&shared.turns);
        // An earlier call's work does not wait for a later one's, so its turn comes, unless its
        // stream has failed.
        while turns.waiting.first() != Some(&self.number) && !member.has_failed() {
            let result = shared.changed.wait_timeout(turns, FAILURE_CHECK_INTERVAL);
            turns = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(turns);
        match uses {
            Uses::Reads => shared.block.read(),
            Uses::Writes => shared.block.write(),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.shared.turns).waiting.remove(&self.number);
        self.shared.changed.notify_all();
    }
}
