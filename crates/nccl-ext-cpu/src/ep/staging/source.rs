//! What low-latency ranks show each other.

use crate::queue::Clock;
use crate::world::{Descriptor, KEYS};

/// What a row of a dispatch consists of.
#[derive(Clone, Copy)]
pub(crate) struct RowShape {
    pub(crate) topk: usize,
    pub(crate) bytes: usize,
    /// Bytes of a row of scales; 0 without scales.
    pub(crate) scale_bytes: usize,
}

/// The tokens of one rank, from which its peers take theirs.
pub(crate) struct DispatchSource {
    /// What happened before the rank sent.
    pub(crate) clock: Clock,
    pub(crate) key: [u64; KEYS],
    pub(crate) tokens: usize,
    pub(crate) experts: *const u32,
    pub(crate) per_expert: *const u32,
    pub(crate) rows: *const u8,
    /// NULL without scales.
    pub(crate) scales: *const u8,
    /// NULL for expert-major.
    pub(crate) weights: *const f32,
}

// SAFETY: the peers only read, and nobody changes what the pointers name during the operation.
unsafe impl Descriptor for DispatchSource {
    const NAME: &'static str = "ncclEpDispatch";
    const KEY: [&'static str; KEYS] =
        ["group", "layout", "num_topk", "hidden", "datatype", "scale bytes"];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

// SAFETY: it is made to be read by other threads; its makers say how long.
unsafe impl Send for DispatchSource {}
// SAFETY: as above.
unsafe impl Sync for DispatchSource {}

impl DispatchSource {
    /// Entries for each expert.
    pub(crate) fn per_expert(&self, experts: usize) -> &[u32] {
        // SAFETY: the table has an entry for each expert, and nobody changes it while the source
        // is shown.
        unsafe { core::slice::from_raw_parts(self.per_expert, experts) }
    }

    /// The expert of each entry of the top-k table.
    pub(crate) fn experts(&self, topk: usize) -> &[u32] {
        // SAFETY: the table has `topk` entries a token, and nobody changes it while the source is
        // shown.
        unsafe { core::slice::from_raw_parts(self.experts, self.tokens * topk) }
    }
}

/// The rows of one rank, of which its peers sum those of their tokens.
pub(crate) struct CombineSource {
    pub(crate) key: [u64; KEYS],
    /// NULL when the rank takes no part.
    pub(crate) rows: *const u8,
    /// The first row of each expert's or source's region; NULL where they are as the dispatch
    /// received them.
    pub(crate) starts: *const usize,
}

// SAFETY: the peers only read.
unsafe impl Descriptor for CombineSource {
    const NAME: &'static str = "ncclEpCombine";
    const KEY: [&'static str; KEYS] =
        ["group", "layout", "num_topk", "hidden", "datatype", "dispatch"];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

// SAFETY: it is made to be read by other threads; its makers say how long.
unsafe impl Send for CombineSource {}
// SAFETY: as above.
unsafe impl Sync for CombineSource {}
