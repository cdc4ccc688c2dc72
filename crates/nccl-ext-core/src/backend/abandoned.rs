//! Work that nobody waits for any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::raw::cudaStream_t;

/// What communicators left behind when they were aborted.
pub(crate) struct Abandoned {
    any: AtomicBool,
    lists: Mutex<Lists>,
}

struct Lists {
    streams: Vec<Stream>,
    work: Vec<Work>,
}

/// A stream that something else owns, by the ordinal of its device and its address. A later stream of
/// the same address counts as abandoned, too: what is used there is not freed before it is done, and
/// not waited for.
struct Stream {
    ordinal: i32,
    address: usize,
    cause: Arc<Error>,
}

/// The work of a communicator.
struct Work {
    ordinal: i32,
    cause: Arc<Error>,
    is_done: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Abandoned {
    pub(super) const fn new() -> Self {
        let lists = Lists { streams: Vec::new(), work: Vec::new() };
        Self { any: AtomicBool::new(false), lists: Mutex::new(lists) }
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        // Nothing panics while it is held.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, add: impl FnOnce(&mut Lists)) {
        add(&mut self.lock());
        self.any.store(true, Ordering::Release);
    }

    /// Remembers a stream; the first cause stays.
    pub(crate) fn add_stream(&self, ordinal: i32, stream: cudaStream_t, cause: &Arc<Error>) {
        if self.cause_of_stream(ordinal, stream).is_some() {
            return;
        }
        let stream = Stream { ordinal, address: stream.addr(), cause: Arc::clone(cause) };
        self.add(|lists| lists.streams.push(stream));
    }

    /// Why a stream was abandoned, if it was.
    pub(crate) fn cause_of_stream(&self, ordinal: i32, stream: cudaStream_t) -> Option<Arc<Error>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let is_it = |known: &&Stream| known.ordinal == ordinal && known.address == stream.addr();
        self.lock().streams.iter().find(is_it).map(|known| Arc::clone(&known.cause))
    }

    /// Remembers the work of a communicator on a device until it is done.
    pub(crate) fn add_work(
        &self,
        ordinal: i32,
        cause: &Arc<Error>,
        is_done: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        let work = Work { ordinal, cause: Arc::clone(cause), is_done: Box::new(is_done) };
        self.add(|lists| lists.work.push(work));
    }

    /// Why some work of the device was abandoned that is not done.
    pub(crate) fn cause_of_work(&self, ordinal: i32) -> Option<Arc<Error>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut lists = self.lock();
        lists.work.retain(|work| work.ordinal != ordinal || !(work.is_done)());
        let work = lists.work.iter().find(|work| work.ordinal == ordinal);
        work.map(|work| Arc::clone(&work.cause))
    }
}
