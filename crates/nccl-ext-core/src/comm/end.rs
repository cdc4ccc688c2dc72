//! How a communicator will end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::Error;

/// In good order, unless it is marked.
pub(super) struct End {
    /// It will not be finalised: something on it is lost or out of step.
    marked: AtomicBool,
    /// Why nothing native is called on it any more.
    aborted: OnceLock<Arc<Error>>,
}

impl End {
    pub(super) const fn new() -> Self {
        Self { marked: AtomicBool::new(false), aborted: OnceLock::new() }
    }

    pub(super) fn mark(&self) {
        self.marked.store(true, Ordering::Release);
    }

    pub(super) fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Acquire)
    }

    /// Whether it is the first reason.
    pub(super) fn abort(&self, cause: &Arc<Error>) -> bool {
        self.mark();
        self.aborted.set(Arc::clone(cause)).is_ok()
    }

    #[inline]
    pub(super) fn aborted(&self) -> Option<&Arc<Error>> {
        self.aborted.get()
    }
}
