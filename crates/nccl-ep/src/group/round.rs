//! Low-latency rounds, of which a group has one open at a time.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use nccl_ext_core::{Error, Result};

use super::SharedGroup;

impl SharedGroup {
    /// What a call that uses the low-latency buffer for no handle (a mask clean, the creation of a
    /// handle) holds the round as, in place of a handle.
    const NO_HANDLE: usize = usize::MAX;

    /// Keeps rounds out while the low-latency buffer is cleaned or may grow.
    pub(crate) fn keep_rounds_out(self: &Arc<Self>) -> Result<Round> {
        self.open_round(Self::NO_HANDLE)
    }

    /// Opens an LL round for a handle. One round a group is open at a time: the
    /// handles share the group's buffers and flags (EP 4.11).
    pub(crate) fn open_round(self: &Arc<Self>, handle: usize) -> Result<Round> {
        let order = Ordering::AcqRel;
        match self.open_round.compare_exchange(0, handle, order, Ordering::Acquire) {
            Ok(_) => Ok(Round { group: Arc::downgrade(self), handle }),
            Err(_) => Err(round_is_open()),
        }
    }

    /// Ends a handle's round, if it is the open one: also one whose step was leaked.
    pub(crate) fn close_round(&self, handle: usize) {
        let order = Ordering::AcqRel;
        let _ = self.open_round.compare_exchange(handle, 0, order, Ordering::Relaxed);
    }
}

fn round_is_open() -> Error {
    Error::Busy {
        what: "the low-latency group",
        reason: "a round is open: combine it or drop its step first, and make handles outside of \
                 rounds and of the overlap of staged calls"
            .into(),
    }
}

/// An open LL round; closed when dropped.
pub(crate) struct Round {
    /// No owner: a round whose step was leaked must not keep the group from being destroyed.
    group: Weak<SharedGroup>,
    handle: usize,
}

impl Drop for Round {
    fn drop(&mut self) {
        if let Some(group) = self.group.upgrade() {
            group.close_round(self.handle);
        }
    }
}
