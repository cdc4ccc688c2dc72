//! What `ci` says while it runs.

use std::time::Instant;

/// Names each step before it runs, with the time so far.
pub(super) struct Steps {
    start: Instant,
}

impl Steps {
    pub(super) fn new() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn next(&self, what: &str) {
        println!("ci: [{} s] {what}", self.start.elapsed().as_secs());
    }
}
