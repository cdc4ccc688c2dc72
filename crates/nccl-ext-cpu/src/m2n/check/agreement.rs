//! Whether all ranks were asked for the same transfers. The vendor's library does not look
//! (M2N 2.7, 4.3).

use crate::m2n::descriptor::{Layout, Side};
use crate::m2n::fault::BrokenRule;
use crate::m2n::published::{EntryFailure, Published};

/// Compares every rank with the first, so that all ranks name the same difference.
pub(crate) fn check(peers: &[&Published]) -> Result<(), EntryFailure<BrokenRule>> {
    let Some((first, others)) = peers.split_first() else { return Ok(()) };
    for (rank, other) in (1..).zip(others) {
        if first.entries.len() != other.entries.len() {
            let (count, found) = (first.entries.len(), other.entries.len());
            let index = first.entries.first().map_or(0, |entry| entry.index);
            return Err(differ(index, rank, "number of transfers in one step", count, found));
        }
        for (mine, theirs) in first.entries.iter().zip(&other.entries) {
            let (a, b) = (&mine.transfer.layout, &theirs.transfer.layout);
            if let Some((what, a, b)) = difference(a, b) {
                return Err(differ(mine.index, rank, &what, a, b));
            }
            if mine.balance != theirs.balance {
                let (a, b) = (format!("{:?}", mine.balance), format!("{:?}", theirs.balance));
                return Err(differ(mine.index, rank, "replica mapping", a, b));
            }
        }
    }
    Ok(())
}

fn differ(
    index: usize,
    rank: usize,
    what: &str,
    first: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> EntryFailure<BrokenRule> {
    let rule = "every rank asks for the same transfers in the same order";
    let (expected, found) = (format!("{first} as on rank 0"), format!("{found} on rank {rank}"));
    EntryFailure {
        index,
        why: BrokenRule::new("reshard", what, rule, expected, found).unchecked_by_the_vendor(),
    }
}

fn difference(a: &Layout, b: &Layout) -> Option<(String, String, String)> {
    if a == b {
        return None;
    }
    let show = |value: &dyn std::fmt::Debug| format!("{value:?}");
    for (name, x, y) in [("src", &a.src, &b.src), ("dst", &a.dst, &b.dst)] {
        type Field = (&'static str, fn(&Side) -> Vec<usize>);
        let fields: [Field; 3] = [
            ("mesh startRank", |side| vec![side.start]),
            ("mesh dims", |side| side.dims.to_vec()),
            ("localShape", |side| side.shape.to_vec()),
        ];
        for (field, of) in fields {
            if of(x) != of(y) {
                return Some((format!("{name} {field}"), show(&of(x)), show(&of(y))));
            }
        }
        let placed =
            |side: &Side| format!("SHARD({}) on mesh axis {}", side.shard_dim, side.shard_axis);
        if placed(x) != placed(y) {
            return Some((format!("{name} placements"), placed(x), placed(y)));
        }
    }
    if a.ndims != b.ndims {
        return Some(("ndims".into(), a.ndims.to_string(), b.ndims.to_string()));
    }
    Some(("dtype".into(), a.dtype.name().into(), b.dtype.name().into()))
}
