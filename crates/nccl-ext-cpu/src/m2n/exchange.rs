//! The one collective behind every reshard: ranks show what they were asked for, make sure that it
//! is the same and can be done, and each destination rank fetches its tiles.

use super::agreement;
use super::balance::{Balance, source_replica};
use super::copy::copy;
use super::fault::{Fault, Rule};
use super::pieces::piece;
use super::ranges;
use super::transfer::Transfer;
use crate::world::{Descriptor, Member, SequenceId};

/// A transfer and the index that its caller knows it by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) index: usize,
    pub(super) transfer: Transfer,
    pub(super) mode: Balance,
}

/// What one rank shows to the others: transfers that run together.
pub(super) struct Published {
    pub(super) entries: Vec<Entry>,
    /// What keeps this rank, and this rank alone, from taking part. It shows up all the same, so
    /// that nobody waits for it.
    pub(super) refused: Option<Stop<Rule>>,
}

// SAFETY: peers read the entries. They read the source tile and nobody writes it; only its own
// rank writes the destination tile. Both are valid until the call returns, by its C contract.
unsafe impl Descriptor for Published {
    const NAME: &'static str = "ncclReshard";
}

/// The entry that ends a call, and why.
#[derive(Debug, Clone)]
pub(super) struct Stop<T> {
    pub(super) index: usize,
    pub(super) why: T,
}

impl<T> Stop<T> {
    pub(super) fn at(index: usize) -> impl FnOnce(T) -> Self {
        move |why| Self { index, why }
    }
}

impl From<Stop<Rule>> for Stop<Fault> {
    fn from(Stop { index, why }: Stop<Rule>) -> Self {
        Self { index, why: why.into() }
    }
}

/// Runs the transfers with all ranks.
///
/// # Safety
/// Where an entry's rank is active, its buffer holds a tile and is not used by anybody else
/// meanwhile; source tiles may be read by others.
pub(super) unsafe fn exchange(member: &Member, published: Published) -> Result<(), Stop<Fault>> {
    let rank = member.rank();
    let met = member.collective(SequenceId::COMM, &published, |peers, _| {
        agree(rank, peers)?;
        // SAFETY: this function's contract, of every rank; all see the same transfers, and no
        // destination tile overlaps another tile.
        unsafe { fetch(rank, peers) };
        Ok(())
    });
    match met {
        Ok(result) => result.map_err(|stop: Stop<Rule>| stop.into()),
        Err(refusal) => Err(match published.refused {
            Some(stop) => stop.into(),
            None => Stop {
                index: published.entries.first().map_or(0, |entry| entry.index),
                why: Fault::world(Published::NAME, refusal),
            },
        }),
    }
}

/// Every rank comes to the same verdict from the same descriptors; where it is a refusal, the
/// vendor's ranks would wait for ever or write wrong bytes.
fn agree(rank: usize, peers: &[&Published]) -> Result<(), Stop<Rule>> {
    if let Some(own) = &peers[rank].refused {
        return Err(own.clone());
    }
    for (peer, published) in peers.iter().enumerate() {
        if let Some(Stop { index, why }) = &published.refused {
            let rule = format!("rank {peer} cannot take part: {}", why.text);
            let why = Rule::broken("reshard", "ranks", &rule, "every rank", "one less");
            return Err(Stop { index: *index, why: why.unchecked_there() });
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
    for (i, Entry { transfer, mode, .. }) in peers[rank].entries.iter().enumerate() {
        let layout = &transfer.layout;
        let Some((shard, replica)) = layout.dst.position(rank) else { continue };
        let source = source_replica(*mode, &layout.src, &layout.dst, replica);
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
