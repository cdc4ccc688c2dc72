//! Events: points in streams' work.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use nccl_ext_core::Error;

use super::clock::VectorClock;
use super::host;
use crate::lock::lock;

/// A point that a stream has come to.
#[derive(Clone)]
struct Reached {
    at: Instant,
    clock: VectorClock,
    /// Why the stream runs nothing more.
    failed: Option<Arc<Error>>,
}

/// One recording of an event.
#[derive(Default)]
pub(crate) struct Point {
    reached: Mutex<Option<Reached>>,
    changed: Condvar,
}

impl Point {
    pub(super) fn reach(&self, clock: VectorClock, failed: Option<Arc<Error>>) {
        *lock(&self.reached) = Some(Reached { at: Instant::now(), clock, failed });
        self.changed.notify_all();
    }

    fn wait(&self) -> Reached {
        let mut reached = lock(&self.reached);
        loop {
            if let Some(reached) = &*reached {
                return reached.clone();
            }
            reached = self.changed.wait(reached).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the moment, and comes after nothing of it.
    pub(super) fn pass(&self) {
        self.wait();
    }

    /// A stream waits for it: what happened before it, or why it never comes.
    pub(super) fn wait_on_stream(&self) -> Result<VectorClock, Arc<Error>> {
        let Reached { clock, failed, .. } = self.wait();
        failed.map_or(Ok(clock), Err)
    }

    /// The calling thread waits for it.
    pub(crate) fn wait_on_host(&self) -> Result<(), Arc<Error>> {
        let Reached { clock, failed, .. } = self.wait();
        host::learn(&clock);
        failed.map_or(Ok(()), Err)
    }

    /// Whether it has been reached; then the calling thread knows what happened before it.
    pub(crate) fn ask(&self) -> Result<bool, Arc<Error>> {
        if lock(&self.reached).is_none() {
            return Ok(false);
        }
        self.wait_on_host().map(|()| true)
    }

    /// When it was reached.
    pub(crate) fn time(&self) -> Option<Instant> {
        lock(&self.reached).as_ref().map(|reached| reached.at)
    }
}
