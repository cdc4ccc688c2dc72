//! The caller's handle memory, in which an update leaves an image of the routing.

use super::image::{self, HEADER, ImageFacts};
use super::learned::Learned;
use super::placement::PlacementRules;
use crate::ep::group::View;
use crate::ep::settings::HandleSettings;
use crate::ep::tensor::TopK;
use crate::queue;
use crate::refusal::Outcome;

/// The only call that reads handle memory itself.
const IMPORT: &str = "ncclExtImportHandle";

/// Handle memory of the caller's, who keeps it as long as the handle (EP 1.7).
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandleMemory {
    data: *mut u8,
    bytes: usize,
}

// SAFETY: the caller lends the memory to the handle, from whatever thread that is used.
unsafe impl Send for HandleMemory {}
// SAFETY: it is written under the lock of the handle's state alone.
unsafe impl Sync for HandleMemory {}

impl HandleMemory {
    pub(crate) fn new(data: *mut u8, bytes: usize) -> Self {
        Self { data, bytes }
    }

    /// The running work is about to read what an update has left.
    pub(super) fn declare_read(self) -> Outcome {
        queue::read(self.data, self.bytes)
    }

    /// The running work is about to replace what is there.
    pub(super) fn declare_written(self) -> Outcome {
        queue::write(self.data, self.bytes)
    }

    /// Replaces what is there; an image that is too long is left out, which no handle's is.
    ///
    /// # Safety
    /// The memory is still there, and nobody else uses it meanwhile.
    unsafe fn write(self, words: &[u64]) {
        let bytes = size_of_val(words);
        if bytes <= self.bytes {
            // SAFETY: this function's contract; bytes need no alignment.
            unsafe { core::ptr::copy_nonoverlapping(words.as_ptr().cast(), self.data, bytes) };
        }
    }

    /// # Safety
    /// As [`write`](Self::write); `words` are no more than the memory has.
    unsafe fn read(self, words: &mut [u64]) {
        let bytes = size_of_val(words);
        // SAFETY: this function's contract.
        unsafe { core::ptr::copy_nonoverlapping(self.data, words.as_mut_ptr().cast(), bytes) };
    }

    /// Whatever was prepared is not any more.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub(super) unsafe fn forget(self) {
        // SAFETY: this function's contract.
        unsafe { self.write(&[0; HEADER]) };
    }

    /// Leaves what another handle needs to go on from here.
    ///
    /// # Safety
    /// As [`write`](Self::write); the table behind `topk` is valid.
    pub(super) unsafe fn prepare(self, facts: &ImageFacts, topk: TopK, state: &mut Learned) {
        let mut words = core::mem::take(&mut state.image);
        // SAFETY: this function's contract.
        unsafe {
            image::encode(&mut words, facts, state, topk.ids());
            self.write(&words);
        }
        state.image = words;
    }

    /// What an update has left here.
    ///
    /// # Safety
    /// The memory is still there, nobody writes it meanwhile, and it is as large as the largest
    /// image.
    pub(super) unsafe fn import(
        self,
        group: &View<'_>,
        facts: &ImageFacts,
        handle: &HandleSettings,
    ) -> Outcome<Learned> {
        let settings = group.settings;
        queue::read_on_host(group.member.deferral(), IMPORT, self.data, self.bytes)?;
        let mut header = [0; HEADER];
        // SAFETY: this function's contract.
        unsafe { self.read(&mut header) };
        let length = image::length(&header, self.bytes / size_of::<u64>())?;
        let mut words = vec![0; length];
        // SAFETY: as above; `length` is inside the memory.
        unsafe { self.read(&mut words) };
        image::decode(&words, facts, settings, &PlacementRules::of(settings, handle))
    }
}
