//! Low-latency rounds, of which a group has one open at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nccl_ext_core::{Error, Result};

use super::SharedGroup;

impl SharedGroup {
    /// What a mask clean holds a round as, in place of a handle.
    pub(crate) const CLEAN: usize = usize::MAX;

    /// Opens an LL round for a handle. One round a group is open at a time: the
    /// handles share the group's buffers and flags (EP 4.11).
    pub(crate) fn open_round(self: &Arc<Self>, handle: usize) -> Result<Round> {
        let order = Ordering::AcqRel;
        match self.open_round.compare_exchange(0, handle, order, Ordering::Acquire) {
            Ok(_) => Ok(Round { group: Arc::clone(self), handle }),
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
        reason: "another handle's round is open; combine it or drop its step first".into(),
    }
}

/// An open LL round; closed when dropped.
pub(crate) struct Round {
    group: Arc<SharedGroup>,
    handle: usize,
}

impl Drop for Round {
    fn drop(&mut self) {
        self.group.close_round(self.handle);
    }
}
