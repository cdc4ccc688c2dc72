//! The one collective behind every reshard: ranks show what they were asked for, make sure that it
//! is the same and can be done, and each destination rank fetches its tiles.
//!
//! # What it orders
//!
//! M2N 4.4: a call's work is ordered as if it ran on the caller's stream, and nothing else is
//! promised. A source rank's part is to read its own tile, which its stream has done when the work
//! ends, so that read is declared when the rank posts, in the order of its own stream. A destination
//! rank writes its tile after what its sources did before they posted, and after nothing that other
//! ranks did. On the way out there is no barrier: a source's stream does not come after the
//! destinations' writes (the vendor's source packs and puts, and waits for nobody's unpacking), and
//! ranks in neither mesh learn nothing. In time all ranks do leave together, so nobody changes a
//! tile that is being fetched.

use crate::m2n::check::{agreement, ranges};
use crate::m2n::fault::{BrokenRule, Fault};
use crate::m2n::plan::{copy, piece, source_replica};
use crate::m2n::published::{Entry, EntryFailure, Published};
use crate::queue::{self, Clock};
use crate::refusal::Refusal;
use crate::world::{Descriptor, Member, SequenceId};

/// Runs the transfers with all ranks.
///
/// # Safety
/// Where an entry's rank is active, its buffer holds a tile and is not used by anybody else
/// meanwhile; source tiles may be read by others.
pub(super) unsafe fn exchange(
    member: &Member,
    published: Published,
) -> Result<(), EntryFailure<Fault>> {
    let rank = member.rank();
    if published.refused.is_none()
        && let Err((index, refusal)) = read_sources(rank, &published.entries)
    {
        // Its peers will not see it come.
        member.fail(&refusal.to_error(Published::NAME));
        return Err(EntryFailure { index, why: Fault::world(Published::NAME, refusal) });
    }
    let met = member.meet(SequenceId::COMM, &published, |peers, clocks| {
        agree(rank, peers)?;
        // SAFETY: this function's contract, of every rank; all see the same transfers, and no
        // destination tile overlaps another tile.
        unsafe { fetch(rank, peers, clocks) }
    });
    met.unwrap_or_else(|refusal| {
        Err(match published.refused {
            Some(stop) => stop.into(),
            None => EntryFailure {
                index: published.entries.first().map_or(0, |entry| entry.index),
                why: Fault::world(Published::NAME, refusal),
            },
        })
    })
}

/// This rank's stream reads its source tiles, whole.
fn read_sources(rank: usize, entries: &[Entry]) -> Result<(), (usize, Refusal)> {
    for &Entry { index, transfer, .. } in entries {
        let src = &transfer.layout.src;
        if src.position(rank).is_some() {
            let bytes = transfer.layout.bytes(src);
            queue::read(transfer.buffers.src, bytes).map_err(|refusal| (index, refusal))?;
        }
    }
    Ok(())
}

/// Every rank comes to the same verdict from the same descriptors; where it is a refusal, the
/// vendor's ranks would wait for ever or write wrong bytes.
fn agree(rank: usize, peers: &[&Published]) -> Result<(), EntryFailure<BrokenRule>> {
    if let Some(own) = &peers[rank].refused {
        return Err(own.clone());
    }
    for (peer, published) in peers.iter().enumerate() {
        if let Some(EntryFailure { index, why }) = &published.refused {
            let rule = format!("rank {peer} cannot take part: {}", why.text);
            let why = BrokenRule::new("reshard", "ranks", &rule, "every rank", "one less");
            return Err(EntryFailure { index: *index, why: why.unchecked_by_the_vendor() });
        }
    }
    agreement::check(peers)?;
    ranges::check(peers)
}

/// Fetches this rank's destination tiles. `clocks` are those of the ranks' posts.
///
/// # Safety
/// As [`exchange`], of every rank; all see the same transfers.
unsafe fn fetch(
    rank: usize,
    peers: &[&Published],
    clocks: &[Clock],
) -> Result<(), EntryFailure<Fault>> {
    for (i, &Entry { index, transfer, balance }) in peers[rank].entries.iter().enumerate() {
        let layout = &transfer.layout;
        let Some((shard, replica)) = layout.dst.position(rank) else { continue };
        let source = source_replica(balance, &layout.src, &layout.dst, replica);
        let pieces = || {
            let shards = 0..layout.src.shards();
            shards.filter_map(|from| {
                Some((layout.src.rank_of(from, source), piece(layout, from, shard)?))
            })
        };
        pieces().filter_map(|(peer, _)| clocks.get(peer)).for_each(queue::join);
        queue::write(transfer.buffers.dst, layout.bytes(&layout.dst)).map_err(|refusal| {
            EntryFailure { index, why: Fault::world(Published::NAME, refusal) }
        })?;
        for (peer, piece) in pieces() {
            let tile = peers[peer].entries[i].transfer.buffers.src;
            // SAFETY: the contract: the source is active on that rank, and the piece is within
            // both tiles. Only the lone rank of its communicator may give one tile twice, and
            // then the piece is one run.
            unsafe { copy(&piece, tile, transfer.buffers.dst) };
        }
    }
    Ok(())
}
