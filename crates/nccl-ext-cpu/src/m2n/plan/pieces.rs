//! Which bytes go from one source shard to one destination shard (M2N 3.2).

use crate::m2n::descriptor::{Layout, Side, TENSOR_DIMS};

/// Two nested loops around a contiguous run. Offsets, strides and the run are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) src_offset: usize,
    pub(crate) dst_offset: usize,
    pub(crate) counts: [usize; TENSOR_DIMS - 1],
    pub(crate) src_strides: [usize; TENSOR_DIMS - 1],
    pub(crate) dst_strides: [usize; TENSOR_DIMS - 1],
    pub(crate) run: usize,
}

/// A side as a tensor of three axes, the first of which may be of length 1, whose last axis counts
/// bytes.
struct TileBox {
    shape: [usize; TENSOR_DIMS],
    /// Global coordinate where the shard begins, on each axis.
    begin: [usize; TENSOR_DIMS],
}

impl TileBox {
    fn new(layout: &Layout, side: &Side, shard: usize) -> Self {
        let missing = TENSOR_DIMS - layout.ndims;
        let mut shape = [1; TENSOR_DIMS];
        shape[missing..].copy_from_slice(layout.shape(side));
        shape[TENSOR_DIMS - 1] *= layout.dtype.size();
        let mut begin = [0; TENSOR_DIMS];
        let sharded = missing + side.shard_dim;
        begin[sharded] = shard * shape[sharded];
        Self { shape, begin }
    }

    fn strides(&self) -> [usize; TENSOR_DIMS] {
        [self.shape[1] * self.shape[2], self.shape[2], 1]
    }
}

/// What source shard `from` has of destination shard `to`; `None` when that is nothing.
///
/// A run goes on over an axis as long as both tiles are covered entirely there, so tiles that
/// differ only in their outermost axis move in one piece.
pub(crate) fn piece(layout: &Layout, from: usize, to: usize) -> Option<Piece> {
    let src = TileBox::new(layout, &layout.src, from);
    let dst = TileBox::new(layout, &layout.dst, to);
    let mut low = [0; TENSOR_DIMS];
    let mut extent = [0; TENSOR_DIMS];
    for x in 0..TENSOR_DIMS {
        low[x] = src.begin[x].max(dst.begin[x]);
        let high = (src.begin[x] + src.shape[x]).min(dst.begin[x] + dst.shape[x]);
        extent[x] = high.checked_sub(low[x]).filter(|&extent| extent > 0)?;
    }
    let mut run = 1;
    let mut outer = TENSOR_DIMS;
    while outer > 0 {
        outer -= 1;
        run *= extent[outer];
        if extent[outer] != src.shape[outer] || extent[outer] != dst.shape[outer] {
            break;
        }
    }
    let (src_strides, dst_strides) = (src.strides(), dst.strides());
    let offset = |tile: &TileBox, strides: &[usize; TENSOR_DIMS]| {
        (0..TENSOR_DIMS).map(|x| (low[x] - tile.begin[x]) * strides[x]).sum()
    };
    let count = |x: usize| if x < outer { extent[x] } else { 1 };
    Some(Piece {
        src_offset: offset(&src, &src_strides),
        dst_offset: offset(&dst, &dst_strides),
        counts: [count(0), count(1)],
        src_strides: [src_strides[0], src_strides[1]],
        dst_strides: [dst_strides[0], dst_strides[1]],
        run,
    })
}

/// How many destination shards have bytes in common with a source shard.
pub(crate) fn targets_of(layout: &Layout, from: usize) -> usize {
    common(layout, &layout.src, from, &layout.dst)
}

/// How many source shards have bytes in common with a destination shard.
pub(crate) fn sources_of(layout: &Layout, to: usize) -> usize {
    common(layout, &layout.dst, to, &layout.src)
}

fn common(layout: &Layout, one: &Side, shard: usize, others: &Side) -> usize {
    if layout.is_empty() {
        return 0;
    }
    if one.shard_dim != others.shard_dim {
        return others.shards();
    }
    let (mine, theirs) = (one.shape[one.shard_dim], others.shape[one.shard_dim]);
    let (begin, end) = (shard * mine, (shard + 1) * mine);
    end.div_ceil(theirs) - begin / theirs
}

#[cfg(test)]
mod tests {
    use nccl_ext_core::DataType;

    use super::*;

    fn side(shards: usize, shard_dim: usize, shape: [usize; 3]) -> Side {
        Side { start: 0, dims: [shards, 1], shard_axis: 0, shard_dim, shape }
    }

    fn layout(ndims: usize, src: Side, dst: Side) -> Layout {
        Layout { src, dst, ndims, dtype: DataType::Uint8 }
    }

    fn flat(src_offset: usize, dst_offset: usize, run: usize) -> Option<(usize, usize, usize)> {
        Some((src_offset, dst_offset, run))
    }

    /// Offset, offset and run of a piece in one run.
    fn one_run(piece: Option<Piece>) -> Option<(usize, usize, usize)> {
        let piece = piece?;
        assert_eq!(piece.counts, [1, 1]);
        Some((piece.src_offset, piece.dst_offset, piece.run))
    }

    /// The byte plan of M2N vector D05 (M2N 3.2).
    #[test]
    fn shards_that_do_not_divide_each_other_share_parts() {
        let d05 = layout(1, side(2, 0, [3, 0, 0]), side(3, 0, [2, 0, 0]));
        let pair = |from, to| one_run(piece(&d05, from, to));
        assert_eq!(pair(0, 0), flat(0, 0, 2));
        assert_eq!(pair(0, 1), flat(2, 0, 1));
        assert_eq!(pair(0, 2), None);
        assert_eq!(pair(1, 1), flat(0, 1, 1));
        assert_eq!(pair(1, 2), flat(1, 0, 2));
        assert_eq!([0, 1].map(|from| targets_of(&d05, from)), [2, 2]);
        assert_eq!([0, 1, 2].map(|to| sources_of(&d05, to)), [1, 2, 1]);
    }

    /// The byte plan of M2N vector D11.
    #[test]
    fn crossed_axes_move_in_rows() {
        let d11 = layout(2, side(2, 0, [2, 4, 0]), side(2, 1, [4, 2, 0]));
        let rows = |src_offset, dst_offset| {
            Some(Piece {
                src_offset,
                dst_offset,
                counts: [1, 2],
                src_strides: [8, 4],
                dst_strides: [8, 2],
                run: 2,
            })
        };
        assert_eq!(piece(&d11, 0, 0), rows(0, 0));
        assert_eq!(piece(&d11, 0, 1), rows(2, 0));
        assert_eq!(piece(&d11, 1, 0), rows(0, 4));
        assert_eq!(piece(&d11, 1, 1), rows(2, 4));
        assert_eq!(targets_of(&d11, 0), 2);
    }

    /// M2N vector D27: three axes, the first and the last sharded.
    #[test]
    fn three_axes_take_two_loops() {
        let d27 = layout(3, side(2, 0, [1, 2, 4]), side(2, 2, [2, 2, 2]));
        let found = piece(&d27, 1, 1).unwrap();
        assert_eq!((found.src_offset, found.dst_offset), (2, 4));
        assert_eq!((found.counts, found.run), ([1, 2], 2));
        assert_eq!((found.src_strides, found.dst_strides), ([8, 4], [4, 2]));
    }

    /// M2N vector D14, where the vendor's plan stops at the sharded axis.
    #[test]
    fn equal_tiles_move_in_one_run() {
        let mut d14 = layout(2, side(2, 1, [2, 2, 0]), side(2, 1, [2, 2, 0]));
        d14.dtype = DataType::Float32;
        assert_eq!(one_run(piece(&d14, 1, 1)), flat(0, 0, 16));
        assert_eq!(piece(&d14, 0, 1), None);
    }

    #[test]
    fn nothing_moves_of_an_empty_tensor() {
        let empty = layout(2, side(2, 0, [1, 0, 0]), side(1, 0, [2, 0, 0]));
        assert_eq!(piece(&empty, 0, 0), None);
        assert_eq!(targets_of(&empty, 0), 0);
    }
}
