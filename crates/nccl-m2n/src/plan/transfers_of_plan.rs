//! The transfers that make up a plan.

use std::ops::Range;

use super::Plan;
use super::transfer::Transfer;

impl Plan {
    /// What a rank sends, by destination shard and then replica. Empty for a rank that holds no
    /// part of the source.
    pub fn sends(&self, rank: usize) -> impl Iterator<Item = Transfer> + '_ {
        let (from, to) = (self.geometry.source.sharding, self.geometry.destination.sharding);
        let held = from.held_by(rank);
        let (shard, replica) = held.unwrap_or((0, 0));
        let targets = if held.is_some() { self.geometry.targets_of(shard) } else { 0..0 };
        targets.filter_map(move |t| Some((t, self.geometry.piece(shard, t)?))).flat_map(
            move |(t, piece)| {
                let served = self.balance.served_by(replica);
                served.map(move |q| Transfer::new((rank, shard), (to.rank_of(t, q), t), &piece))
            },
        )
    }

    /// What a rank receives, by source shard. Empty for a rank that holds no part of the
    /// destination.
    pub fn receives(&self, rank: usize) -> impl Iterator<Item = Transfer> + '_ {
        let (from, to) = (self.geometry.source.sharding, self.geometry.destination.sharding);
        let held = to.held_by(rank);
        let (shard, replica) = held.unwrap_or((0, 0));
        let sources = if held.is_some() { self.geometry.sources_of(shard) } else { 0..0 };
        let server = self.balance.source_of(replica);
        sources.filter_map(move |s| {
            let piece = self.geometry.piece(s, shard)?;
            Some(Transfer::new((from.rank_of(s, server), s), (rank, shard), &piece))
        })
    }

    /// All transfers, by destination rank and then source shard. They are computed on the way: a
    /// plan keeps none.
    pub fn transfers(&self) -> impl Iterator<Item = Transfer> + '_ {
        self.destination.mesh().ranks().flat_map(|rank| self.receives(rank))
    }

    /// Number of transfers.
    #[must_use]
    pub fn transfer_count(&self) -> usize {
        let to = self.geometry.destination.sharding;
        let shards: Range<usize> = 0..to.shards;
        shards.map(|t| self.geometry.sources_of(t).len()).sum::<usize>() * to.replicas
    }
}
