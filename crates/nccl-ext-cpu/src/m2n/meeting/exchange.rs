//! The one collective behind every reshard: ranks show what they were asked for, make sure that it
//! is the same and can be done, and each destination rank fetches its tiles.

use crate::m2n::check::{agreement, ranges};
use crate::m2n::fault::{BrokenRule, Fault};
use crate::m2n::plan::{copy, piece, source_replica};
use crate::m2n::published::{Entry, EntryFailure, Published};
use crate::world::{Descriptor, Member, SequenceId};

/// Runs the transfers with all ranks.
///
/// # Safety
/// Where an entry's rank is active, its buffer holds a tile and is not used by anybody else
/// meanwhile; source tiles may be read by others.
pub(crate) unsafe fn exchange(
    member: &Member,
    published: Published,
) -> Result<(), EntryFailure<Fault>> {
    let rank = member.rank();
    let met = member.collective(SequenceId::COMM, &published, |peers, _| {
        agree(rank, peers)?;
        // SAFETY: this function's contract, of every rank; all see the same transfers, and no
        // destination tile overlaps another tile.
        unsafe { fetch(rank, peers) };
        Ok(())
    });
    match met {
        Ok(result) => result.map_err(|stop: EntryFailure<BrokenRule>| stop.into()),
        Err(refusal) => Err(match published.refused {
            Some(stop) => stop.into(),
            None => EntryFailure {
                index: published.entries.first().map_or(0, |entry| entry.index),
                why: Fault::world(Published::NAME, refusal),
            },
        }),
    }
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

/// Fetches this rank's destination tiles.
///
/// # Safety
/// As [`exchange`], of every rank; all see the same transfers.
unsafe fn fetch(rank: usize, peers: &[&Published]) {
    for (i, Entry { transfer, balance, .. }) in peers[rank].entries.iter().enumerate() {
        let layout = &transfer.layout;
        let Some((shard, replica)) = layout.dst.position(rank) else { continue };
        let source = source_replica(*balance, &layout.src, &layout.dst, replica);
        for from in 0..layout.src.shards() {
            let Some(piece) = piece(layout, from, shard) else { continue };
            let peer = peers[layout.src.rank_of(from, source)];
            let tile = peer.entries[i].transfer.buffers.src;
            // SAFETY: the contract: the source is active on that rank, and the piece is within
            // both tiles. Only the lone rank of its communicator may give one tile twice, and
            // then the piece is one run.
            unsafe { copy(&piece, tile, transfer.buffers.dst) };
        }
    }
}
