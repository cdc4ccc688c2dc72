//! Which piece of which source shard goes where in which destination shard (M2N 3.2).

use std::ops::Range;

use crate::layout::Layout;
use crate::shape::MAX_TENSOR_DIMS;
use crate::sharding::Sharding;

/// One side in bytes: extents and strides of its tile, the innermost dimension counted in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SideGeometry {
    pub(crate) sharding: Sharding,
    extents: [usize; MAX_TENSOR_DIMS],
    strides: [usize; MAX_TENSOR_DIMS],
}

impl SideGeometry {
    fn new(layout: &Layout) -> Self {
        let ndims = layout.local_shape().len();
        let mut extents = layout.local_shape().padded();
        if let Some(inner) = ndims.checked_sub(1).and_then(|last| extents.get_mut(last)) {
            *inner *= layout.data_type().size();
        }
        let mut strides = [1; MAX_TENSOR_DIMS];
        for x in (0..MAX_TENSOR_DIMS - 1).rev() {
            strides[x] = strides[x + 1] * extents[x + 1];
        }
        Self { sharding: layout.sharding(), extents, strides }
    }

    /// Bytes of a tile.
    pub(crate) fn bytes(&self) -> usize {
        self.strides[0] * self.extents[0]
    }

    /// What of the global tensor a shard holds along dimension `x`.
    fn range(&self, shard: usize, x: usize) -> Range<usize> {
        let start = if x == self.sharding.dim { shard * self.extents[x] } else { 0 };
        start..start + self.extents[x]
    }

    pub(crate) fn extents(&self) -> [usize; MAX_TENSOR_DIMS] {
        self.extents
    }

    pub(crate) fn strides(&self) -> [usize; MAX_TENSOR_DIMS] {
        self.strides
    }

    /// Where a shard begins in the global tensor.
    pub(crate) fn start_of(&self, shard: usize) -> [usize; MAX_TENSOR_DIMS] {
        std::array::from_fn(|x| self.range(shard, x).start)
    }
}

/// Both sides of a reshard. Their global shapes are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) source: SideGeometry,
    pub(crate) destination: SideGeometry,
    ndims: usize,
}

/// One level of the loops around a run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Loop {
    /// How often.
    pub count: usize,
    /// Bytes from one pass to the next in the source tile.
    pub source_stride: usize,
    /// Bytes from one pass to the next in the destination tile.
    pub destination_stride: usize,
}

/// Most levels: the innermost dimension is always part of the run.
pub(crate) const MAX_LOOPS: usize = MAX_TENSOR_DIMS - 1;

/// What one source shard has for one destination shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) source_offset: usize,
    pub(crate) destination_offset: usize,
    pub(crate) loops: [Loop; MAX_LOOPS],
    pub(crate) depth: usize,
    pub(crate) run: usize,
}

impl Piece {
    pub(crate) fn bytes(&self) -> usize {
        self.loops[..self.depth].iter().fold(self.run, |bytes, level| bytes * level.count)
    }
}

impl Geometry {
    pub(crate) fn new(source: &Layout, destination: &Layout) -> Self {
        Self {
            source: SideGeometry::new(source),
            destination: SideGeometry::new(destination),
            ndims: source.local_shape().len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.source.bytes() == 0 || self.destination.bytes() == 0
    }

    /// What shard `s` has for shard `t`. A run of bytes ends at a sharded dimension of either side,
    /// even where it could go on.
    pub(crate) fn piece(&self, s: usize, t: usize) -> Option<Piece> {
        let (source, destination) = (&self.source, &self.destination);
        let mut piece = Piece {
            source_offset: 0,
            destination_offset: 0,
            loops: [Loop::default(); MAX_LOOPS],
            depth: 0,
            run: 1,
        };
        let mut in_run = true;
        let mut outermost = self.ndims;
        let mut counts = [1; MAX_TENSOR_DIMS];
        for x in (0..self.ndims).rev() {
            let (from, to) = (source.range(s, x), destination.range(t, x));
            let (lo, hi) = (from.start.max(to.start), from.end.min(to.end));
            if lo >= hi {
                return None;
            }
            counts[x] = hi - lo;
            piece.source_offset += (lo - from.start) * source.strides[x];
            piece.destination_offset += (lo - to.start) * destination.strides[x];
            if in_run {
                piece.run *= counts[x];
                outermost = x;
                in_run = x != source.sharding.dim
                    && x != destination.sharding.dim
                    && counts[x] == source.extents[x]
                    && counts[x] == destination.extents[x];
            }
        }
        for (x, level) in piece.loops.iter_mut().enumerate().take(outermost) {
            *level = Loop {
                count: counts[x],
                source_stride: source.strides[x],
                destination_stride: destination.strides[x],
            };
        }
        piece.depth = outermost.min(MAX_LOOPS);
        Some(piece)
    }

    /// The source shards that have something for destination shard `t`.
    pub(crate) fn sources_of(&self, t: usize) -> Range<usize> {
        self.overlaps(&self.destination, t, &self.source)
    }

    /// The destination shards that get something of source shard `s`.
    pub(crate) fn targets_of(&self, s: usize) -> Range<usize> {
        self.overlaps(&self.source, s, &self.destination)
    }

    fn overlaps(&self, of: &SideGeometry, shard: usize, among: &SideGeometry) -> Range<usize> {
        if self.is_empty() {
            return 0..0;
        }
        let all = 0..among.sharding.shards;
        if of.sharding.dim != among.sharding.dim {
            return all;
        }
        let range = of.range(shard, of.sharding.dim);
        let block = among.extents[among.sharding.dim];
        (range.start / block).min(all.end)..range.end.div_ceil(block).min(all.end)
    }

    /// Most source shards of a destination shard.
    pub(crate) fn most_sources(&self) -> usize {
        self.most(&self.destination, |t| self.sources_of(t))
    }

    /// Most destination shards of a source shard.
    pub(crate) fn most_targets(&self) -> usize {
        self.most(&self.source, |s| self.targets_of(s))
    }

    fn most(&self, of: &SideGeometry, overlaps: impl Fn(usize) -> Range<usize>) -> usize {
        // Across dimensions all overlap alike.
        let along = self.source.sharding.dim == self.destination.sharding.dim;
        let shards = if along { of.sharding.shards } else { 1 };
        (0..shards).map(|shard| overlaps(shard).len()).max().unwrap_or(0)
    }
}
