//! Memory of this backend's own, as far as it matters who uses it after whom.

use std::sync::Mutex;

use super::running::with_running;
use super::uses::{NewUse, Uses};
use crate::lock::lock;
use crate::refusal::Outcome;

/// A block of the library's own memory.
#[derive(Debug)]
pub(crate) struct Block {
    name: &'static str,
    bytes: usize,
    uses: Mutex<Uses>,
}

impl Block {
    /// A block that errors call `name`.
    pub(crate) fn new(name: &'static str, bytes: usize) -> Self {
        Self { name, bytes, uses: Mutex::default() }
    }

    /// The running work is about to read it.
    pub(crate) fn read(&self) -> Outcome {
        self.note(false)
    }

    /// The running work is about to write it.
    pub(crate) fn write(&self) -> Outcome {
        self.note(true)
    }

    fn note(&self, writes: bool) -> Outcome {
        let noted = with_running(|running| {
            let (actor, before, time) = running.now();
            let new = NewUse { bytes: 0..self.bytes, writes, actor, time, before };
            lock(&self.uses).add(&new, || self.name.into())
        });
        noted.unwrap_or(Ok(()))
    }
}
