//! Who holds what: a mesh and its placements in the library's normal form.

use crate::mesh::Mesh;
use crate::placement::Placement;

/// A mesh with placements as the library plans with them (M2N 2.2): one dimension of the tensor
/// that is cut into `shards` equal blocks, and `replicas` copies of each. A tensor that is not
/// sharded has one shard of dimension 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Sharding {
    /// The first rank.
    pub start_rank: usize,
    /// The dimension of the tensor that is cut.
    pub dim: usize,
    /// Number of blocks.
    pub shards: usize,
    /// Copies of each block.
    pub replicas: usize,
    /// From the rank of a shard to that of the next, within a replica.
    pub shard_stride: usize,
    /// From a replica's rank to that of the next, within a shard.
    pub replica_stride: usize,
}

impl Sharding {
    /// The normal form; placements are resolved and one of them shards at most.
    pub(crate) fn new(mesh: &Mesh, placements: [Placement; 2]) -> Self {
        let [d0, d1] = mesh.padded_dims();
        let start_rank = mesh.start_rank();
        let dim = |dim: i32| usize::try_from(dim).unwrap_or(0);
        match placements {
            [Placement::Shard(d), _] => Self {
                start_rank,
                dim: dim(d),
                shards: d0,
                replicas: d1,
                shard_stride: d1,
                replica_stride: 1,
            },
            [_, Placement::Shard(d)] => Self {
                start_rank,
                dim: dim(d),
                shards: d1,
                replicas: d0,
                shard_stride: 1,
                replica_stride: d1,
            },
            _ => Self {
                start_rank,
                dim: 0,
                shards: 1,
                replicas: mesh.size(),
                shard_stride: 1,
                replica_stride: 1,
            },
        }
    }

    /// The rank that holds this copy of this shard.
    #[must_use]
    pub fn rank_of(&self, shard: usize, replica: usize) -> usize {
        self.start_rank + shard * self.shard_stride + replica * self.replica_stride
    }

    /// The shard and the replica that a rank holds, if it holds any.
    #[must_use]
    pub fn held_by(&self, rank: usize) -> Option<(usize, usize)> {
        let local = rank.checked_sub(self.start_rank)?;
        if local >= self.shards * self.replicas {
            return None;
        }
        // One of the strides is 1, or the only rank along it makes it meaningless.
        Some(if self.replica_stride == 1 && self.shards > 1 {
            (local / self.shard_stride, local % self.shard_stride)
        } else {
            (local % self.replica_stride, local / self.replica_stride)
        })
    }

    /// Whether every rank holds the same.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.shards == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement::{Replicate, Shard};

    fn held(dims: &[usize], placements: [Placement; 2]) -> Vec<(usize, usize)> {
        let mesh = Mesh::new(dims, 10).unwrap();
        let sharding = Sharding::new(&mesh, placements);
        assert_eq!(sharding.held_by(9), None);
        assert_eq!(sharding.held_by(mesh.ranks().end), None);
        let held: Vec<_> = mesh.ranks().map(|rank| sharding.held_by(rank).unwrap()).collect();
        for (rank, (shard, replica)) in mesh.ranks().zip(&held) {
            assert!(*shard < sharding.shards && *replica < sharding.replicas);
            assert_eq!(sharding.rank_of(*shard, *replica), rank);
        }
        held
    }

    #[test]
    fn ranks_and_shards_map_to_each_other() {
        let line: Vec<_> = (0..4).map(|i| (i, 0)).collect();
        // Three ways to say the same (M2N 3.1).
        assert_eq!(held(&[4], [Shard(0), Replicate]), line);
        assert_eq!(held(&[4, 1], [Shard(0), Replicate]), line);
        assert_eq!(held(&[1, 4], [Replicate, Shard(1)]), line);
        // (REPLICATE, SHARD): shard = local % d1; (SHARD, REPLICATE): shard = local / d1.
        let rs = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)];
        assert_eq!(held(&[2, 3], [Replicate, Shard(0)]), rs);
        let sr = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
        assert_eq!(held(&[2, 3], [Shard(0), Replicate]), sr);
        let copies: Vec<_> = (0..6).map(|i| (0, i)).collect();
        assert_eq!(held(&[2, 3], [Replicate, Replicate]), copies);
        assert_eq!(held(&[1, 6], [Shard(0), Replicate]), copies);
        assert_eq!(held(&[1], [Replicate, Replicate]), [(0, 0)]);
        assert_eq!(held(&[3, 1], [Replicate, Shard(0)]), [(0, 0), (0, 1), (0, 2)]);
    }
}
