//! The summing half of high-throughput combine.

use crate::ep::ht::learned::Learned;
use crate::ep::ht::routes::Row;
use crate::ep::numerics::{BLOCK, Token};
use crate::ep::settings::EmMode;
use crate::ep::slots::NOWHERE;
use crate::world::{Descriptor, KEYS};

/// The rows of one rank, of which its peers sum those of their tokens.
pub(super) struct CombineSource {
    pub(super) key: [u64; KEYS],
    pub(super) rows: *mut u8,
    /// Whether sums of a rank's own rows are left in them (EP 4.8.5).
    pub(super) mutated: bool,
}

// SAFETY: each peer reads, and where `mutated` writes, only the rows that the update placed for
// it; the owner made sure that they exist.
unsafe impl Descriptor for CombineSource {
    const NAME: &'static str = "ncclEpCombine";
    const KEY: [&'static str; KEYS] = ["group", "update", "hidden", "datatype", "routing", ""];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

/// A rank that sums.
pub(super) struct Sum<'a> {
    pub(super) learned: &'a Learned,
    pub(super) peers: &'a [&'a CombineSource],
    pub(super) hidden: usize,
    /// `None` for FLAT.
    pub(super) mode: Option<EmMode>,
}

impl Sum<'_> {
    /// # Safety
    /// Peers and output hold rows of `hidden` aligned elements of `T`; every slot of the
    /// placement exists on its rank and is this rank's.
    pub(super) unsafe fn all<T: Token>(&self, out: *mut T) {
        let mut sums = [0.0_f32; BLOCK];
        for token in 0..self.learned.routes.tokens() {
            for begin in (0..self.hidden).step_by(BLOCK) {
                let len = BLOCK.min(self.hidden - begin);
                let sum = &mut sums[..len];
                sum.fill(0.0);
                for index in self.learned.routes.rows_of(token) {
                    let row = self.learned.routes.row(index);
                    // SAFETY: this function's contract.
                    unsafe {
                        match self.mode {
                            None => {
                                let slot = self.learned.placement.flat_slot[index];
                                self.add::<T>(sum, row, slot, begin);
                            }
                            Some(EmMode::NvlinkDup) => {
                                for &slot in self.slots(row) {
                                    self.add::<T>(sum, row, slot, begin);
                                }
                            }
                            Some(_) => self.add_partial::<T>(sum, row, begin),
                        }
                    }
                }
                // SAFETY: the output's rows; nobody else has them.
                let out = unsafe {
                    core::slice::from_raw_parts_mut(out.add(token * self.hidden + begin), len)
                };
                T::store(sum, out);
            }
        }
    }

    fn slots(&self, row: Row) -> &[u32] {
        &self.learned.placement.copy_slot[row.first as usize..][..row.count as usize]
    }

    /// # Safety
    /// As [`all`](Self::all); the block lies inside a row.
    unsafe fn add<T: Token>(&self, sum: &mut [f32], row: Row, slot: u32, begin: usize) {
        if slot == NOWHERE {
            return;
        }
        // SAFETY: this function's contract; nobody writes the row meanwhile.
        let values = unsafe {
            let first = self.peers[row.rank as usize].rows.cast::<T>();
            let first = first.add(slot as usize * self.hidden + begin);
            core::slice::from_raw_parts(first, sum.len())
        };
        T::add(sum, values);
    }

    /// A rank's part is summed and rounded on its own (EP 4.8.4).
    ///
    /// # Safety
    /// As [`add`](Self::add).
    unsafe fn add_partial<T: Token>(&self, sum: &mut [f32], row: Row, begin: usize) {
        let kept = self.slots(row).iter().copied().filter(|&slot| slot != NOWHERE);
        let mut others = kept.clone();
        let Some(first) = others.next() else { return };
        if others.next().is_none() {
            // Rounding a single row gives the row.
            // SAFETY: this function's contract.
            return unsafe { self.add::<T>(sum, row, first, begin) };
        }
        let mut part = [0.0_f32; BLOCK];
        let mut rounded = [T::default(); BLOCK];
        let (part, rounded) = (&mut part[..sum.len()], &mut rounded[..sum.len()]);
        for slot in kept {
            // SAFETY: this function's contract.
            unsafe { self.add::<T>(part, row, slot, begin) };
        }
        T::store(part, rounded);
        T::add(sum, rounded);
        let peer = self.peers[row.rank as usize];
        if peer.mutated {
            // SAFETY: this function's contract; the row is this rank's alone, and its block has
            // been read already.
            unsafe {
                let to = peer.rows.cast::<T>().add(first as usize * self.hidden + begin);
                core::ptr::copy_nonoverlapping(rounded.as_ptr(), to, rounded.len());
            }
        }
    }
}
