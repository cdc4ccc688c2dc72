//! What this rank alone has against a group: its entries' own errors, and memory that two of them
//! share.

use std::ops::Range;

use nccl_ext_core::Error;
use nccl_ext_core::rules::check;

use super::Group;
use super::entry::{entry_error, fuses};
use crate::rules::group::{self, SharedMemory, SharedMemoryFacts};

impl Group<'_> {
    /// The first entry that this rank alone has something against.
    pub(super) fn own_failure(&self) -> Option<Error> {
        let failed = self.entries.iter().enumerate();
        let failed = failed.filter_map(|(i, entry)| Some((i, entry.failed.clone()?))).next();
        let (index, error) = match (failed, self.check_shared_memory().err()) {
            (Some(failed), Some(shared)) if shared.0 < failed.0 => shared,
            (failed, shared) => failed.or(shared)?,
        };
        Some(entry_error(index, error))
    }

    /// Two entries use the same memory. Two sources may, where nothing is fused.
    ///
    /// # Errors
    /// With the number of the later entry.
    fn check_shared_memory(&self) -> Result<(), (usize, Error)> {
        let shared = self.shared_memory();
        let facts = SharedMemoryFacts { shared: shared.map(|(_, shared)| shared) };
        let index = shared.map_or(0, |(later, _)| later);
        check(group::MEMORY, |broken| broken(&facts)).map_err(|error| (index, error))
    }

    /// The first entry that uses memory of an earlier one, and that memory.
    fn shared_memory(&self) -> Option<(usize, SharedMemory)> {
        let mut uses: Vec<(&Range<usize>, usize, bool)> = Vec::new();
        for (i, entry) in self.entries.iter().enumerate() {
            let [source, destination] = &entry.tiles;
            uses.extend(source.iter().map(|range| (range, i, false)));
            uses.extend(destination.iter().map(|range| (range, i, true)));
        }
        uses.sort_unstable_by_key(|(range, index, _)| (range.start, *index));
        let mut first: Option<(usize, SharedMemory)> = None;
        for (at, (range, i, written)) in uses.iter().enumerate() {
            let later = uses[at + 1..].iter().take_while(|(other, ..)| other.start < range.end);
            for (other, j, also_written) in later {
                if i != j && (*written || *also_written || self.fuses_together(*i, *j)) {
                    let (low, high) = ((*i).min(*j), (*i).max(*j));
                    if first.as_ref().is_none_or(|(first, _)| high < *first) {
                        let bytes = other.end.min(range.end) - other.start;
                        let address = other.start;
                        first = Some((high, SharedMemory { entry: low, address, bytes }));
                    }
                }
            }
        }
        first
    }

    fn fuses_together(&self, i: usize, j: usize) -> bool {
        let (Some(a), Some(b)) = (self.entries.get(i), self.entries.get(j)) else { return false };
        a.fusion_key() == b.fusion_key() && fuses(a.conditions(), 2)
    }
}
