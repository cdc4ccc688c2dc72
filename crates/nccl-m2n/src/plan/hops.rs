//! The steps that bytes take, in the point-to-point and in the hierarchical form (M2N 3.4, 3.5).

use std::ops::Range;

use super::balance::block_of;
use super::{Plan, Transport};

/// What a hop is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum HopKind {
    /// A source rank puts a piece into a destination rank's memory.
    Put,
    /// A destination rank passes a piece on to another replica of its shard in its own domain.
    LocalCopy,
    /// A destination rank passes a piece on to a replica in the next domain.
    Forward,
}

/// One step of a piece from rank to rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Hop {
    /// What it is for.
    pub kind: HopKind,
    /// The rank that sends.
    pub from: usize,
    /// The rank that receives.
    pub to: usize,
    /// The source shard that the piece comes from.
    pub source_shard: usize,
    /// The destination shard that it belongs to.
    pub destination_shard: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Plan {
    /// Every hop that the expected transport makes. Each destination rank gets each of its pieces
    /// with exactly one of them.
    ///
    /// Over several domains the library may, with communicators that it splits off, choose other
    /// domains to start with (M2N 3.5); the tiles come out the same.
    #[must_use]
    pub fn hops(&self) -> Vec<Hop> {
        let mut hops = Vec::with_capacity(self.transfer_count());
        self.each_hop(|hop| hops.push(hop));
        hops
    }

    pub(crate) fn each_hop(&self, mut visit: impl FnMut(Hop)) {
        match self.transport {
            Transport::SingleDomain | Transport::Direct => {
                self.transfers().for_each(|transfer| {
                    visit(Hop {
                        kind: HopKind::Put,
                        from: transfer.source,
                        to: transfer.destination,
                        source_shard: transfer.source_shard,
                        destination_shard: transfer.destination_shard,
                        bytes: transfer.bytes(),
                    });
                });
            }
            Transport::Kernel | Transport::Pipe => self.each_ring_hop(&mut visit),
        }
    }

    fn each_ring_hop(&self, visit: &mut dyn FnMut(Hop)) {
        let (from, to) = (self.geometry.source.sharding, self.geometry.destination.sharding);
        for shard in 0..to.shards {
            let sources = self.geometry.sources_of(shard);
            for server in 0..from.replicas {
                let nodes = self.nodes_of(shard, self.balance.served_by(server));
                let Some(first) = nodes.first() else { continue };
                for (me, source_shard) in sources.clone().enumerate() {
                    let Some(piece) = self.geometry.piece(source_shard, shard) else { continue };
                    let slot = block_of(sources.len(), first.len(), me);
                    let mut hop = Hop {
                        kind: HopKind::Put,
                        from: from.rank_of(source_shard, server),
                        to: 0,
                        source_shard,
                        destination_shard: shard,
                        bytes: piece.bytes(),
                    };
                    for (i, node) in nodes.iter().enumerate() {
                        // The replica that handles this slot: slots that a small node has no
                        // replica for fall to its last.
                        let active = nodes[..=i].iter().map(Range::len).min().unwrap_or(1);
                        let handler = to.rank_of(shard, node.start + slot.min(active - 1));
                        hop.to = handler;
                        visit(hop);
                        hop.from = handler;
                        hop.kind = HopKind::LocalCopy;
                        for replica in node.clone() {
                            hop.to = to.rank_of(shard, replica);
                            if hop.to != handler {
                                visit(hop);
                            }
                        }
                        hop.kind = HopKind::Forward;
                    }
                }
            }
        }
    }

    /// Replicas of a shard by the domain that their ranks lie in.
    fn nodes_of(&self, shard: usize, replicas: Range<usize>) -> Vec<Range<usize>> {
        let to = self.geometry.destination.sharding;
        let node = |replica| self.balance.node_of_rank(to.rank_of(shard, replica));
        let mut nodes: Vec<Range<usize>> = Vec::new();
        for replica in replicas {
            match nodes.last_mut() {
                Some(last) if node(last.start) == node(replica) => last.end = replica + 1,
                _ => nodes.push(replica..replica + 1),
            }
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement::{Replicate, Shard};
    use crate::plan::Conditions;
    use crate::{DataType, Layout, Mesh, Placement};

    fn layout(dims: &[usize], start: usize, placements: &[Placement], local: usize) -> Layout {
        let mesh = Mesh::new(dims, start).unwrap();
        Layout::new(mesh, placements, &[local], DataType::Uint8).unwrap()
    }

    fn paths(source: &Layout, destination: &Layout, domain: usize) -> [Vec<(usize, usize)>; 3] {
        let plan = Plan::new(source, destination, &Conditions::domains(8, domain)).unwrap();
        assert_eq!(plan.transport(), Transport::Kernel);
        [HopKind::Put, HopKind::LocalCopy, HopKind::Forward].map(|kind| {
            let hops = plan.hops().into_iter().filter(|hop| hop.kind == kind);
            let mut pairs: Vec<_> = hops.map(|hop| (hop.from, hop.to)).collect();
            pairs.sort_unstable();
            pairs
        })
    }

    /// M2N vector H1.
    #[test]
    fn h1_two_shards_to_six_copies_in_domains_of_two() {
        let source = layout(&[2], 0, &[Shard(0)], 2);
        let destination = layout(&[6], 2, &[Replicate], 4);
        let [puts, copies, forwards] = paths(&source, &destination, 2);
        assert_eq!(puts, [(0, 2), (1, 3)]);
        assert_eq!(copies, [(2, 3), (3, 2), (4, 5), (5, 4), (6, 7), (7, 6)]);
        assert_eq!(forwards, [(2, 4), (3, 5), (4, 6), (5, 7)]);
    }

    /// M2N vector H2.
    #[test]
    fn h2_equal_shards_go_along_the_rails() {
        let source = layout(&[1, 2], 0, &[Replicate, Shard(0)], 2);
        let destination = layout(&[3, 2], 2, &[Replicate, Shard(0)], 2);
        let [puts, copies, forwards] = paths(&source, &destination, 2);
        assert_eq!(puts, [(0, 2), (1, 3)]);
        assert_eq!(copies, []);
        assert_eq!(forwards, [(2, 4), (3, 5), (4, 6), (5, 7)]);
    }
}
