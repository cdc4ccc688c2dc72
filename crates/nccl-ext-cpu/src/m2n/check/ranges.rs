//! Tiles that overlap in memory.
//!
//! Within one rank the vendor's library refuses it between entries of a fused group (M2N 2.6 #9).
//! Between ranks it has nothing to refuse, for their memory is apart; threads share theirs, and a
//! tile that one of them writes while another uses it would be a data race.

use crate::m2n::fault::BrokenRule;
use crate::m2n::published::{Entry, EntryFailure, Published};

/// The bytes of a tile.
#[derive(Debug, Clone, Copy)]
struct Range {
    begin: usize,
    end: usize,
    index: usize,
    written: bool,
}

/// The bytes behind a pointer; `None` when there are none, or they go beyond the address space.
fn range(data: *const u8, bytes: usize, index: usize, written: bool) -> Option<Range> {
    if data.is_null() || bytes == 0 {
        return None;
    }
    let begin = data.addr();
    Some(Range { begin, end: begin.checked_add(bytes)?, index, written })
}

/// The entries of one rank (M2N 2.6 #9): no two of them share a byte, not even to read it, and
/// the buffers of an inactive side count as well.
pub(crate) fn check_entries(api: &str, entries: &[Entry]) -> Result<(), EntryFailure<BrokenRule>> {
    let mut ranges = Vec::with_capacity(2 * entries.len());
    for &Entry { index, transfer, .. } in entries {
        let layout = &transfer.layout;
        for (side, data) in
            [(&layout.src, transfer.buffers.src), (&layout.dst, transfer.buffers.dst)]
        {
            let bytes = layout.bytes(side);
            if data.addr().checked_add(bytes).is_none() {
                let rule = "a buffer ends within the address space";
                let found = format!("{bytes} bytes at {data:p}");
                let why = BrokenRule::new(api, "dataPtr", rule, "a buffer in memory", found);
                return Err(EntryFailure { index, why });
            }
            ranges.extend(range(data, bytes, index, true));
        }
    }
    // Overlap inside one entry is allowed.
    let Some((i, j)) = first_overlap(&mut ranges, |a, b| a.index == b.index) else { return Ok(()) };
    let (i, j) = (i.index.min(j.index), i.index.max(j.index));
    let rule = format!("entries {i} and {j} use the same memory: overlapping buffers");
    let why = BrokenRule::new(api, "dataPtr", &rule, "buffers of their own", "common bytes");
    Err(EntryFailure { index: j, why })
}

/// The tiles of all ranks: what one writes, no other uses.
pub(crate) fn check(peers: &[&Published]) -> Result<(), EntryFailure<BrokenRule>> {
    // The lone rank of its communicator is on both sides and may copy in place (M2N 2.5).
    if peers.len() == 1 {
        return Ok(());
    }
    let mut ranges = Vec::new();
    for (rank, peer) in peers.iter().enumerate() {
        for &Entry { index, transfer, .. } in &peer.entries {
            let layout = &transfer.layout;
            if layout.src.position(rank).is_some() {
                let bytes = layout.bytes(&layout.src);
                ranges.extend(range(transfer.buffers.src, bytes, index, false));
            }
            if layout.dst.position(rank).is_some() {
                let bytes = layout.bytes(&layout.dst);
                ranges.extend(range(transfer.buffers.dst, bytes, index, true));
            }
        }
    }
    let both_read = |a: &Range, b: &Range| !a.written && !b.written;
    let Some((a, b)) = first_overlap(&mut ranges, both_read) else { return Ok(()) };
    let rule = "a destination tile is no part of another rank's tile";
    let why = BrokenRule::new("reshard", "dataPtr", rule, "memory of its own", "common bytes");
    Err(EntryFailure { index: a.index.max(b.index), why: why.unchecked_by_the_vendor() })
}

/// Two ranges that overlap and may not, by ascending address.
fn first_overlap(
    ranges: &mut [Range],
    allowed: impl Fn(&Range, &Range) -> bool,
) -> Option<(Range, Range)> {
    ranges.sort_unstable_by_key(|range| (range.begin, range.end));
    // Ranges that reach beyond the one looked at; few unless many overlap with permission.
    let mut open: Vec<Range> = Vec::new();
    for range in ranges.iter() {
        open.retain(|other| other.end > range.begin);
        if let Some(other) = open.iter().find(|other| !allowed(other, range)) {
            return Some((*other, *range));
        }
        open.push(*range);
    }
    None
}
