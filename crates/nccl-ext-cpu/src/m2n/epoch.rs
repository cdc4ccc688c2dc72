//! An epoch: the settings that live as long as any handle, and the work that was given to streams
//! under them (M2N 4.1).

use std::sync::{Arc, Mutex, Weak};

use super::environment::Environment;
use super::progress::Progress;
use crate::lock::lock;
use crate::world::Member;

/// What the first live handle has begun.
pub(super) struct Epoch {
    pub(super) environment: Environment,
    /// Ranks that have made a call.
    known: Mutex<Vec<Weak<Member>>>,
    /// Work that streams may still run.
    outstanding: Mutex<Vec<Arc<Progress>>>,
}

impl Epoch {
    pub(super) fn begin() -> Self {
        let environment = Environment::read();
        Self { environment, known: Mutex::default(), outstanding: Mutex::default() }
    }

    /// Whether the rank makes its first call on its communicator, in which the vendor's library
    /// meets the others on the host (M2N 4.4).
    pub(super) fn is_first_use(&self, member: &Arc<Member>) -> bool {
        let mut known = lock(&self.known);
        known.retain(|other| other.strong_count() > 0);
        if known.iter().any(|other| Weak::as_ptr(other) == Arc::as_ptr(member)) {
            return false;
        }
        known.push(Arc::downgrade(member));
        true
    }

    /// Work that a stream runs later.
    pub(super) fn note(&self, progress: &Arc<Progress>) {
        let mut outstanding = lock(&self.outstanding);
        outstanding.retain(|other| !other.has_ended());
        outstanding.push(Arc::clone(progress));
    }

    /// Waits for all work, as the end of an epoch does (M2N 4.1).
    pub(super) fn wait(&self) {
        let outstanding = std::mem::take(&mut *lock(&self.outstanding));
        outstanding.iter().for_each(|progress| progress.wait());
    }
}
