//! Streams that something else owns, and whose work nobody waits for any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::raw::cudaStream_t;

/// A stream by the ordinal of its device and its address, and why it was abandoned. A later stream
/// of the same address counts as abandoned, too: what is used there is not freed before it is done,
/// and not waited for.
struct Entry {
    ordinal: i32,
    address: usize,
    cause: Arc<Error>,
}

pub(crate) struct Abandoned {
    any: AtomicBool,
    entries: Mutex<Vec<Entry>>,
}

impl Abandoned {
    pub(super) const fn new() -> Self {
        Self { any: AtomicBool::new(false), entries: Mutex::new(Vec::new()) }
    }

    /// Remembers a stream; the first cause stays.
    pub(crate) fn add(&self, ordinal: i32, stream: cudaStream_t, cause: &Arc<Error>) {
        if self.cause(ordinal, stream).is_some() {
            return;
        }
        let entry = Entry { ordinal, address: stream.addr(), cause: Arc::clone(cause) };
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        self.any.store(true, Ordering::Release);
    }

    /// Why it was abandoned, if it was.
    pub(crate) fn cause(&self, ordinal: i32, stream: cudaStream_t) -> Option<Arc<Error>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |entry: &&Entry| entry.ordinal == ordinal && entry.address == stream.addr();
        entries.iter().find(is_it).map(|entry| Arc::clone(&entry.cause))
    }
}
