//! The sending half of high-throughput dispatch: every rank pushes its rows to where the last
//! update placed them.

use crate::ep::ht::learned::Learned;
use crate::ep::settings::Settings;
use crate::ep::slots::NOWHERE;
use crate::world::{Descriptor, KEYS};

/// Where a rank receives, as it shows its peers.
pub(super) struct DispatchTarget {
    pub(super) key: [u64; KEYS],
    /// NULL pointers are those of empty outputs, into which nobody has anything to write.
    pub(super) outputs: Option<Outputs>,
}

#[derive(Clone, Copy)]
pub(super) struct Outputs {
    pub(super) tokens: *mut u8,
    pub(super) weights: *mut f32,
    /// NULL without scales.
    pub(super) scales: *mut u8,
    /// FLAT only.
    pub(super) ids: *mut i64,
    pub(super) global: bool,
    /// Rows that there are of tokens and scales, and of weights and ids.
    pub(super) rows: u64,
    pub(super) weight_rows: u64,
}

// SAFETY: the caller keeps the tensors valid until the stream has passed the dispatch, for whatever
// thread does the stream's work.
unsafe impl Send for Outputs {}

// SAFETY: each peer writes the rows that the update placed for it, which no other rank writes;
// the owner made sure that they exist.
unsafe impl Descriptor for DispatchTarget {
    const NAME: &'static str = "ncclEpDispatch";
    const KEY: [&'static str; KEYS] =
        ["group", "update", "hidden", "datatype", "routing", "scale bytes"];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

/// A rank's own tokens and weights.
#[derive(Clone, Copy)]
pub(super) struct Sources {
    pub(super) tokens: *const u8,
    pub(super) weights: *const f32,
    /// NULL without scales.
    pub(super) scales: *const u8,
}

// SAFETY: as for `Outputs`.
unsafe impl Send for Sources {}

/// Bytes of a row of tokens, and of one of scales, which is 0 when there are none.
#[derive(Clone, Copy)]
pub(super) struct RowBytes {
    pub(super) tokens: usize,
    pub(super) scales: usize,
}

/// A sender at work.
pub(super) struct Push<'a> {
    pub(super) sources: Sources,
    pub(super) peers: &'a [&'a DispatchTarget],
    pub(super) bytes: RowBytes,
    pub(super) topk: usize,
    pub(super) settings: &'a Settings,
}

impl Push<'_> {
    /// # Safety
    /// Every slot of the placement exists on its receiver and is this rank's.
    pub(super) unsafe fn flat(&self, state: &Learned) {
        let Learned { routes, placement, .. } = state;
        for token in 0..routes.tokens() {
            for index in routes.rows_of(token) {
                let (row, slot) = (routes.row(index), placement.flat_slot[index]);
                let Some(to) = self.peers[row.rank as usize].outputs else { continue };
                if slot == NOWHERE {
                    continue;
                }
                let slot = slot as usize;
                let first = row.rank as usize * self.settings.local_experts;
                // SAFETY: this function's contract; a row has `topk` columns in both tables.
                unsafe {
                    self.copy_row(token, to, slot);
                    let ids = to.ids.add(slot * self.topk);
                    let weights = to.weights.add(slot * self.topk);
                    let copies = routes.copies_of(row);
                    for (q, copy) in copies.iter().enumerate() {
                        let expert = copy.expert as usize;
                        let id = if to.global { expert } else { expert - first };
                        ids.add(q).write(id as i64);
                        weights.add(q).write(self.weight(token, copy.k));
                    }
                    for q in copies.len()..self.topk {
                        ids.add(q).write(-1);
                        weights.add(q).write(0.0);
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`flat`](Self::flat).
    pub(super) unsafe fn expert_major(&self, state: &Learned) {
        let Learned { routes, placement, .. } = state;
        for token in 0..routes.tokens() {
            for row in routes.rows_of(token).map(|index| routes.row(index)) {
                let Some(to) = self.peers[row.rank as usize].outputs else { continue };
                let slots = &placement.copy_slot[row.first as usize..];
                for (copy, &slot) in routes.copies_of(row).iter().zip(slots) {
                    if slot == NOWHERE {
                        continue;
                    }
                    let slot = slot as usize;
                    // SAFETY: this function's contract.
                    unsafe {
                        self.copy_row(token, to, slot);
                        to.weights.add(slot).write(self.weight(token, copy.k));
                    }
                }
            }
        }
    }

    /// # Safety
    /// The slot exists and is this rank's.
    unsafe fn copy_row(&self, token: usize, to: Outputs, slot: usize) {
        // SAFETY: this function's contract; the token is one of the inputs.
        unsafe {
            let bytes = self.bytes.tokens;
            let from = self.sources.tokens.add(token * bytes);
            core::ptr::copy_nonoverlapping(from, to.tokens.add(slot * bytes), bytes);
            let bytes = self.bytes.scales;
            if bytes > 0 {
                let from = self.sources.scales.add(token * bytes);
                core::ptr::copy_nonoverlapping(from, to.scales.add(slot * bytes), bytes);
            }
        }
    }

    /// # Safety
    /// The token is one of the inputs.
    unsafe fn weight(&self, token: usize, k: u32) -> f32 {
        // SAFETY: this function's contract; weights have `topk` columns.
        unsafe { self.sources.weights.add(token * self.topk + k as usize).read() }
    }
}

/// # Safety
/// All outputs have rows up to `end`.
pub(super) unsafe fn zero(outputs: Outputs, bytes: RowBytes, begin: usize, end: usize) {
    if begin < end {
        // SAFETY: this function's contract.
        unsafe {
            let rows = end - begin;
            outputs.tokens.add(begin * bytes.tokens).write_bytes(0, rows * bytes.tokens);
            if bytes.scales > 0 {
                outputs.scales.add(begin * bytes.scales).write_bytes(0, rows * bytes.scales);
            }
            outputs.weights.add(begin).write_bytes(0, end - begin);
        }
    }
}
