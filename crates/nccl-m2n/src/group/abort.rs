//! Groups that are given up: who is told, and who stays in step.

use std::sync::Arc;

use nccl_ext_core::Error;

use super::{EntryFailure, Group};
use crate::recording::set_recording;
use crate::runtime::CommState;

impl Group<'_> {
    /// Gives the recorded entries up before they are issued.
    pub(super) fn abort(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        set_recording(false);
        let library = self.runtime.library;
        // SAFETY: no arguments. It ends this thread's group, which nobody else has a part in.
        let aborted =
            unsafe { library.call("ncclM2nGroupAbort", library.api.ncclM2nGroupAbort, ()) };
        if let Err(error) = aborted {
            tracing::error!(%error, "an M2N group was not aborted");
        }
    }

    /// The recording function failed. Where it passed on the error of an entry, all ranks of that
    /// entry's communicator have it too. Otherwise nobody knows what it would have recorded.
    pub(super) fn abort_after(&mut self, error: &Error) {
        self.abort();
        match &self.failed {
            Some(EntryFailure { error: failed, in_step: in_step @ Some(_) })
                if is_same_entry_error(failed, error) =>
            {
                self.diverge_except(*in_step, error);
            }
            _ => self.diverge_everywhere(error),
        }
    }

    /// Leaves every communicator that somebody may wait on for this rank.
    pub(super) fn diverge_everywhere(&self, error: &Error) {
        self.diverge_except(None, error);
        self.runtime.comm_states().iter().for_each(|state| state.diverge_and_tell(error));
    }

    /// Leaves the communicators of the group, except one whose ranks all have the error.
    pub(super) fn diverge_except(&self, in_step: Option<usize>, error: &Error) {
        let others = self.comm_states().into_iter();
        let others = others.filter(|state| Some(state.address()) != in_step);
        others.for_each(|state| state.diverge_and_tell(error));
    }

    /// The communicators, in the order of their first entries.
    pub(super) fn comm_states(&self) -> Vec<&CommState> {
        let mut states: Vec<&CommState> = Vec::new();
        for entry in &self.entries {
            if !states.iter().any(|state| std::ptr::eq(*state, &*entry.comm_state)) {
                states.push(&entry.comm_state);
            }
        }
        states
    }
}

/// Whether the recording function passed on the group's own error.
fn is_same_entry_error(a: &Error, b: &Error) -> bool {
    match (a, b) {
        (Error::Entry { index: i, error: a }, Error::Entry { index: j, error: b }) => {
            i == j && Arc::ptr_eq(a, b)
        }
        _ => false,
    }
}
