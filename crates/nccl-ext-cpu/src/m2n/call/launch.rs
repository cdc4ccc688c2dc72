//! Entries of a fused bucket that one launch moves (M2N 4.3).

use crate::m2n::check::limits;
use crate::m2n::descriptor::{Layout, Side};
use crate::m2n::environment::Environment;
use crate::m2n::fault::{BrokenRule, require};
use crate::m2n::published::{Entry, EntryFailure, Published};

/// What texts about entries of a fused bucket begin with.
pub(super) const API: &str = "ncclM2nGroupEnd";

/// Entries that one launch moves.
pub(super) struct Launch {
    entries: Vec<Entry>,
    /// Bytes of all their tiles on a rank of each side.
    src: u64,
    dst: u64,
}

/// Meshes and placements are equal; shapes, ranks of the tensors and types need not be.
fn same_topology(a: &Layout, b: &Layout) -> bool {
    let of = |side: &Side| (side.start, side.dims, side.shard_axis, side.shard_dim);
    of(&a.src) == of(&b.src) && of(&a.dst) == of(&b.dst)
}

impl Launch {
    /// First fit by equal topology within a staging buffer; the largest one runs first (M2N 4.3).
    pub(super) fn of(environment: &Environment, entries: Vec<Entry>) -> Vec<Self> {
        let bytes = |entry: &Entry| {
            let layout = &entry.transfer.layout;
            (layout.bytes(&layout.src) as u64, layout.bytes(&layout.dst) as u64)
        };
        let alone = |entry: &Entry| {
            let (src, dst) = bytes(entry);
            limits::staged_bytes(src, dst)
        };
        let largest = entries.iter().map(alone).max().unwrap_or(0);
        let buckets = &environment.buckets;
        let budget = buckets.holding(largest).unwrap_or(buckets.largest());
        let mut launches: Vec<Self> = Vec::new();
        for entry in entries {
            let (src, dst) = bytes(&entry);
            let layout = &entry.transfer.layout;
            let fits = |launch: &&mut Self| {
                let together = limits::staged_bytes(
                    launch.src.saturating_add(src),
                    launch.dst.saturating_add(dst),
                );
                same_topology(&launch.entries[0].transfer.layout, layout) && together <= budget
            };
            match launches.iter_mut().find(fits) {
                Some(launch) => {
                    launch.src += src;
                    launch.dst += dst;
                    launch.entries.push(entry);
                }
                None => launches.push(Self { entries: vec![entry], src, dst }),
            }
        }
        launches.sort_by_key(|launch| std::cmp::Reverse(launch.staged_bytes()));
        launches
    }

    fn staged_bytes(&self) -> u64 {
        limits::staged_bytes(self.src, self.dst)
    }

    /// What PACK asks of a launch; the same on every rank.
    pub(super) fn check(
        &self,
        environment: &Environment,
        ranks: usize,
    ) -> Result<(), EntryFailure<BrokenRule>> {
        let first = &self.entries[0];
        let stop = EntryFailure::at(first.index);
        limits::staging(API, environment, self.staged_bytes()).map_err(stop)?;
        for &Entry { index, transfer, balance } in &self.entries {
            let layout = &transfer.layout;
            // The vendor's ranks find that their peers differ, except those that have none: these
            // go on, and the launch hangs (M2N 2.6 #10).
            require(layout.is_empty() == first.transfer.layout.is_empty(), || {
                let rule = "entries of one launch have the same peers";
                let expected = "empty tensors by themselves";
                let found = "an empty one beside one that is not";
                BrokenRule::new(API, "localShape", rule, expected, found).unchecked_by_the_vendor()
            })
            .and_then(|()| limits::pack_peers(API, layout, ranks, balance, self.entries.len() == 1))
            .map_err(EntryFailure::at(index))?;
        }
        Ok(())
    }

    /// What a rank shows of it to the others.
    pub(super) fn publish(self, refused: Option<EntryFailure<BrokenRule>>) -> Published {
        Published { entries: self.entries, refused }
    }
}
