//! A reshard in normal form: two sides of one global tensor (M2N 2.2, 3.1).

use nccl_ext_core::DataType;

use super::raw::{MESH_DIMS, TENSOR_DIMS};

/// One side. Ranks lie row-major on the mesh; exactly one axis shards, the other replicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) start: usize,
    pub(crate) dims: [usize; MESH_DIMS],
    /// The axis of the mesh that shards.
    pub(crate) shard_axis: usize,
    /// The axis of the tensor that is sharded.
    pub(crate) shard_dim: usize,
    /// A tile's extents in elements; those beyond the tensor's rank are 0.
    pub(crate) shape: [usize; TENSOR_DIMS],
}

impl Side {
    pub(crate) fn shards(&self) -> usize {
        self.dims[self.shard_axis]
    }

    pub(crate) fn replicas(&self) -> usize {
        self.dims[1 - self.shard_axis]
    }

    /// One past the last rank.
    pub(crate) fn end(&self) -> usize {
        self.start + self.shards() * self.replicas()
    }

    /// The shard and the replica that a rank holds, if it is in the mesh.
    pub(crate) fn position(&self, rank: usize) -> Option<(usize, usize)> {
        if !(self.start..self.end()).contains(&rank) {
            return None;
        }
        let local = rank - self.start;
        let index = [local / self.dims[1], local % self.dims[1]];
        Some((index[self.shard_axis], index[1 - self.shard_axis]))
    }

    /// The inverse of [`position`](Self::position).
    pub(crate) fn rank_of(&self, shard: usize, replica: usize) -> usize {
        let index = if self.shard_axis == 0 { [shard, replica] } else { [replica, shard] };
        self.start + index[0] * self.dims[1] + index[1]
    }

    /// The global extent of an axis; `None` when it overflows.
    pub(crate) fn global_extent(&self, dim: usize) -> Option<usize> {
        let shards = if dim == self.shard_dim { self.shards() } else { 1 };
        self.shape[dim].checked_mul(shards)
    }
}

/// What is the same on every rank of one reshard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) src: Side,
    pub(crate) dst: Side,
    /// The tensor's rank.
    pub(crate) ndims: usize,
    pub(crate) dtype: DataType,
}

/// A side's tile on this rank, whether or not the rank is in the mesh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffers {
    pub(crate) src: *mut u8,
    pub(crate) dst: *mut u8,
}

// SAFETY: memory belongs to no thread; who follows the pointers keeps the C contract.
unsafe impl Send for Buffers {}

/// One reshard as one rank sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) layout: Layout,
    pub(crate) buffers: Buffers,
}

impl Layout {
    /// The extents of a side's tile.
    pub(crate) fn shape<'a>(&self, side: &'a Side) -> &'a [usize] {
        &side.shape[..self.ndims]
    }

    /// Bytes of one tile of a side; 0 when that overflows, which the checks refuse first.
    pub(crate) fn bytes(&self, side: &Side) -> usize {
        let mut extents = self.shape(side).iter();
        extents.try_fold(self.dtype.size(), |bytes, &extent| bytes.checked_mul(extent)).unwrap_or(0)
    }

    /// Whether no element moves.
    pub(crate) fn is_empty(&self) -> bool {
        self.shape(&self.src).contains(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "rs" and "sr" of M2N 3.1.
    #[test]
    fn ranks_lie_row_major() {
        let rs = Side { start: 4, dims: [2, 3], shard_axis: 1, shard_dim: 0, shape: [2, 0, 0] };
        let sr = Side { shard_axis: 0, ..rs };
        for rank in 4..10 {
            let local = rank - 4;
            assert_eq!(rs.position(rank), Some((local % 3, local / 3)));
            assert_eq!(sr.position(rank), Some((local / 3, local % 3)));
            for side in [rs, sr] {
                let (shard, replica) = side.position(rank).unwrap();
                assert_eq!(side.rank_of(shard, replica), rank);
            }
        }
        assert_eq!((rs.end(), rs.position(3), rs.position(10)), (10, None, None));
        assert_eq!((rs.global_extent(0), sr.global_extent(0)), (Some(6), Some(4)));
    }
}
