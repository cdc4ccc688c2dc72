//! Reshards with an oracle.

use std::ptr::{null_mut, without_provenance_mut};

use nccl_ext_core::Comm;
use nccl_ext_core::raw::{ncclComm_t, ncclDataType_t, ncclResult_t};

use crate::cpu::{done, stream};

use super::{CANARY, CanaryTile, OwnedDescriptor, TensorSide, api, assert_ok};

/// A reshard of bytes: what the source tiles hold is up to the test.
#[derive(Debug, Clone)]
pub struct ReshardCase {
    pub ranks: usize,
    pub dtype: ncclDataType_t,
    pub element: usize,
    pub src: TensorSide,
    pub dst: TensorSide,
}

impl ReshardCase {
    pub fn new(ranks: usize, element: usize, src: &str, dst: &str) -> Self {
        let dtype = match element {
            1 => ncclDataType_t::ncclUint8,
            2 => ncclDataType_t::ncclBfloat16,
            4 => ncclDataType_t::ncclFloat32,
            _ => ncclDataType_t::ncclInt64,
        };
        Self { ranks, dtype, element, src: TensorSide::parse(src), dst: TensorSide::parse(dst) }
    }

    /// A plain reshard of `n` bytes from rank 0 to rank 1.
    pub fn plain(n: usize) -> Self {
        Self::new(2, 1, &format!("{{1}}@0 [R] {n}"), &format!("{{1}}@1 [R] {n}"))
    }

    /// Bytes of the tile of a rank whose element with global index `i` is `value(i, byte)`.
    pub fn bytes(
        &self,
        side: &TensorSide,
        rank: usize,
        value: impl Fn(usize, usize) -> u8,
    ) -> Vec<u8> {
        let element = |index: usize| (0..self.element).map(move |byte| (index, byte));
        let indices = side.tile(rank).into_iter().flat_map(element);
        indices.map(|(index, byte)| value(index, byte)).collect()
    }

    /// A rank's tiles: the source of these bytes, the destination of canaries.
    pub fn tiles(&self, rank: usize, value: impl Fn(usize, usize) -> u8) -> RankTiles {
        let src = self.src.has(rank).then(|| CanaryTile::of(&self.bytes(&self.src, rank, value)));
        let dst = self.dst.has(rank).then(|| CanaryTile::new(self.dst.elements() * self.element));
        RankTiles { src, dst }
    }

    /// The same with bytes that tell where they come from.
    pub fn pattern_tiles(&self, rank: usize) -> RankTiles {
        self.tiles(rank, pattern_byte)
    }

    /// With the default handle.
    pub fn call(&self, comm: &Comm, tiles: &mut RankTiles) -> ncclResult_t {
        self.call_with(comm, 0, tiles)
    }

    /// With the handle of this token.
    pub fn call_with(&self, comm: &Comm, token: usize, tiles: &mut RankTiles) -> ncclResult_t {
        // SAFETY: the communicator is live.
        unsafe { self.call_raw(comm.as_raw(), token, tiles) }
    }

    /// With a communicator that need not exist.
    ///
    /// # Safety
    /// It is live, or the call is refused before it is used.
    pub unsafe fn call_raw(
        &self,
        comm: ncclComm_t,
        token: usize,
        tiles: &mut RankTiles,
    ) -> ncclResult_t {
        let [mut src, mut dst] = self.descriptors(tiles);
        let handle = without_provenance_mut(token);
        // SAFETY: the caller's contract; the descriptors are this frame's, and the tiles the
        // caller's.
        done(unsafe { (api().ncclReshard)(handle, comm, src.raw(), dst.raw(), stream()) })
    }

    /// Source and destination over these tiles.
    pub fn descriptors(&self, tiles: &mut RankTiles) -> [Box<OwnedDescriptor>; 2] {
        let sides = [(&self.src, &mut tiles.src), (&self.dst, &mut tiles.dst)];
        sides.map(|(side, tile)| {
            let data = tile.as_mut().map_or(null_mut(), CanaryTile::pointer);
            OwnedDescriptor::new(side, self.dtype, data)
        })
    }

    /// Reshards and checks everything: the destination tiles against the oracle, canaries, and
    /// that sources are as they were.
    #[track_caller]
    pub fn run(&self, comm: &Comm) {
        let mut tiles = self.pattern_tiles(comm.rank());
        assert_ok(self.call(comm, &mut tiles));
        self.check(comm.rank(), &tiles);
    }

    /// The destination is as the oracle says, the source of [`pattern_tiles`](Self::pattern_tiles) as
    /// it was, and nothing was written beside them.
    #[track_caller]
    pub fn check(&self, rank: usize, tiles: &RankTiles) {
        let sides = [(&tiles.src, &self.src, "source"), (&tiles.dst, &self.dst, "destination")];
        for (tile, side, name) in sides {
            if let Some(tile) = tile {
                tile.assert_canaries();
                let expected = self.bytes(side, rank, pattern_byte);
                assert!(tile.data() == expected, "rank {rank}, {name}: {self:?}");
            }
        }
    }
}

/// What a rank gives to a call.
#[derive(Debug, Clone)]
pub struct RankTiles {
    pub src: Option<CanaryTile>,
    pub dst: Option<CanaryTile>,
}

impl RankTiles {
    /// # Panics
    /// If the destination has been written.
    #[track_caller]
    pub fn assert_untouched(&self) {
        if let Some(tile) = &self.dst {
            assert!(tile.data().iter().all(|&byte| byte == CANARY), "the destination was written");
        }
    }
}

/// A byte that tells its element, and which of the element's bytes it is.
pub fn pattern_byte(index: usize, byte: usize) -> u8 {
    (index.wrapping_mul(0x9E37_79B1) >> 7).wrapping_add(byte * 53 + index) as u8
}
