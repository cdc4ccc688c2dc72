//! How far the work of a call is, which a stream may run when the call has returned.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::fault::Fault;
use super::published::EntryFailure;
use crate::lock::lock;

/// Shared by a call and its work.
#[derive(Debug, Default)]
pub(super) struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ended: bool,
    failure: Option<EntryFailure<Fault>>,
}

impl Progress {
    /// What the work has failed with; it is taken once.
    pub(super) fn take_failure(&self) -> Option<EntryFailure<Fault>> {
        lock(&self.state).failure.take()
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Waits until the work has ended, or will never begin. Nothing is ordered by that: M2N 4.4
    /// promises an order of streams only.
    pub(super) fn wait(&self) {
        let mut state = lock(&self.state);
        while !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Held by the work; its drop is the end, also of work that a failed stream never begins.
pub(super) struct Running(Arc<Progress>);

impl Running {
    pub(super) fn new(progress: &Arc<Progress>) -> Self {
        Self(Arc::clone(progress))
    }

    pub(super) fn fail(&self, failure: EntryFailure<Fault>) {
        lock(&self.0.state).failure = Some(failure);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.changed.notify_all();
    }
}
