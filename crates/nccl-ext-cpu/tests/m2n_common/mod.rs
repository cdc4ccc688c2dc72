//! What the M2N tests share: descriptors that own what they point to, tiles with canaries around
//! them, an oracle that slices a global tensor, and ranks to run it all on.
#![allow(dead_code, missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::CStr;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::time::Duration;

use nccl_ext_core::raw::{ncclComm_t, ncclDataType_t, ncclResult_t};
use nccl_ext_core::{Comm, Error};
use nccl_ext_cpu::{CpuConfig, FailureClass, backend, last_refusal, run_ranks};
use nccl_m2n_sys::*;

pub const OK: ncclResult_t = ncclResult_t::ncclSuccess;
pub const ARGUMENT: ncclResult_t = ncclResult_t::ncclInvalidArgument;
pub const USAGE: ncclResult_t = ncclResult_t::ncclInvalidUsage;

pub fn api() -> &'static M2nApi {
    backend().extension::<M2nApi>().unwrap()
}

/// The text of this thread's last M2N error.
pub fn last_text() -> String {
    // SAFETY: the function returns a string that lives until the thread's next call.
    unsafe { CStr::from_ptr((api().ncclM2nGetLastError)()) }.to_str().unwrap().to_owned()
}

/// The error behind this thread's last call, as the safe crates read it.
pub fn take_error() -> Option<Error> {
    (backend().hooks().unwrap().take_error)()
}

#[track_caller]
pub fn ok(code: ncclResult_t) {
    assert_eq!(code, OK, "{}", last_text());
}

/// The call was refused, in the vendor's library with this class, and its text has these words.
#[track_caller]
pub fn refused(code: ncclResult_t, expected: ncclResult_t, class: FailureClass, words: &[&str]) {
    let text = last_text();
    assert_eq!(code, expected, "{text}");
    assert_eq!(last_refusal(), Some(class), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in `{text}`");
    }
    let Some(Error::Native { code: inside, detail, .. }) = take_error() else { panic!("{text}") };
    assert_eq!(inside, expected);
    assert!(detail.starts_with(&text), "{detail}");
}

pub fn config() -> CpuConfig {
    CpuConfig::new().timeout(Duration::from_secs(20))
}

/// Runs `body` on every rank of a new world; no rank fails.
#[track_caller]
pub fn ranks<T: Send>(count: usize, body: impl Fn(&Comm) -> T + Sync) -> Vec<T> {
    let results = run_ranks(count, &config(), |comm| Ok::<_, Error>(body(&comm)));
    let failures: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    results.into_iter().map(Result::unwrap).collect()
}

pub const R: i32 = NCCL_RESHARD_REPLICATE;

/// One side of a reshard as the specification writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    pub dims: Vec<i32>,
    pub start: i32,
    pub placements: Vec<i32>,
    pub shape: Vec<usize>,
}

impl Side {
    /// Reads `{2,2}@4 [R,S1] 4x2`.
    pub fn parse(text: &str) -> Self {
        let [mesh, placements, shape] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let (dims, start) = mesh.split_once('@').unwrap();
        let inside = |text: &str, open, close| {
            let text = text.strip_prefix(open).unwrap().strip_suffix(close).unwrap();
            text.split(',').map(str::to_owned).collect::<Vec<_>>()
        };
        let placement = |text: &String| match text.strip_prefix('S') {
            Some(dim) => dim.parse().unwrap(),
            None => R,
        };
        Self {
            dims: inside(dims, '{', '}').iter().map(|dim| dim.parse().unwrap()).collect(),
            start: start.parse().unwrap(),
            placements: inside(placements, '[', ']').iter().map(placement).collect(),
            shape: shape.split('x').map(|extent| extent.parse().unwrap()).collect(),
        }
    }

    pub fn ranks(&self) -> std::ops::Range<usize> {
        let size: i32 = self.dims.iter().product();
        self.start as usize..(self.start + size) as usize
    }

    pub fn has(&self, rank: usize) -> bool {
        self.ranks().contains(&rank)
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn global(&self) -> Vec<usize> {
        let mut global = self.shape.clone();
        for (axis, &placement) in self.placements.iter().enumerate() {
            if placement != R {
                global[placement as usize] *= self.dims[axis] as usize;
            }
        }
        global
    }

    /// The oracle: row-major global indices of a rank's tile, element by element.
    ///
    /// The rank's coordinates on the mesh come from counting ranks row-major; nothing here knows
    /// of normal forms, runs or strides.
    pub fn tile(&self, rank: usize) -> Vec<usize> {
        let mut coordinates = vec![0; self.dims.len()];
        for _ in self.start as usize..rank {
            for axis in (0..self.dims.len()).rev() {
                coordinates[axis] += 1;
                if coordinates[axis] < self.dims[axis] as usize {
                    break;
                }
                coordinates[axis] = 0;
            }
        }
        let mut begin = vec![0; self.shape.len()];
        for (axis, &placement) in self.placements.iter().enumerate() {
            if placement != R {
                begin[placement as usize] += coordinates[axis] * self.shape[placement as usize];
            }
        }
        let global = self.global();
        let mut indices = vec![0];
        for (dim, &extent) in self.shape.iter().enumerate() {
            indices = indices
                .into_iter()
                .flat_map(|index| {
                    let begin = begin[dim];
                    (0..extent).map(move |i| (index, begin + i))
                })
                .map(|(index, i)| index * global[dim] + i)
                .collect();
        }
        indices
    }
}

/// A descriptor's arrays; [`raw`](Self::raw) gives the C structures over them.
pub struct Descriptor {
    pub dims: Vec<i32>,
    pub placements: Vec<i32>,
    pub shape: Vec<usize>,
    pub mesh: ncclMesh_t,
    pub tensor: ncclDistTensor_t,
}

impl Descriptor {
    pub fn new(side: &Side, dtype: ncclDataType_t, data: *mut u8) -> Box<Self> {
        let Side { dims, start, placements, shape } = side.clone();
        let mut mesh = ncclMesh_t::init();
        mesh.ndims = dims.len() as i32;
        mesh.startRank = start;
        let mut tensor = ncclDistTensor_t::init();
        tensor.ndims = shape.len() as i32;
        tensor.dtype = dtype;
        tensor.dataPtr = data.cast();
        Box::new(Self { dims, placements, shape, mesh, tensor })
    }

    pub fn raw(&mut self) -> *const ncclDistTensor_t {
        self.mesh.dims = self.dims.as_mut_ptr();
        self.tensor.mesh = &raw const self.mesh;
        self.tensor.localShape = self.shape.as_mut_ptr();
        self.tensor.placements = self.placements.as_mut_ptr();
        &raw const self.tensor
    }
}

/// What untouched memory holds.
pub const CANARY: u8 = 0xEE;
const MARGIN: usize = 48;

/// A tile with canaries before and after it.
#[derive(Debug, Clone)]
pub struct Tile {
    memory: Vec<u8>,
    /// Odd distances from the allocation: data has no alignment.
    offset: usize,
    bytes: usize,
}

impl Tile {
    pub fn new(bytes: usize) -> Self {
        let offset = MARGIN + bytes % 7;
        Self { memory: vec![CANARY; offset + bytes + MARGIN], offset, bytes }
    }

    pub fn of(data: &[u8]) -> Self {
        let mut tile = Self::new(data.len());
        tile.memory[tile.offset..][..data.len()].copy_from_slice(data);
        tile
    }

    pub fn pointer(&mut self) -> *mut u8 {
        // SAFETY: the offset is within the memory.
        unsafe { self.memory.as_mut_ptr().add(self.offset) }
    }

    pub fn data(&self) -> &[u8] {
        &self.memory[self.offset..][..self.bytes]
    }

    /// Nothing was written around it.
    #[track_caller]
    pub fn check(&self) {
        let around = self.memory[..self.offset].iter();
        let mut around = around.chain(&self.memory[self.offset + self.bytes..]);
        assert!(around.all(|&byte| byte == CANARY), "written beyond the tile");
    }
}

/// A reshard of bytes: what the source tiles hold is up to the test.
#[derive(Debug, Clone)]
pub struct Case {
    pub ranks: usize,
    pub dtype: ncclDataType_t,
    pub element: usize,
    pub src: Side,
    pub dst: Side,
}

impl Case {
    pub fn new(ranks: usize, element: usize, src: &str, dst: &str) -> Self {
        let dtype = match element {
            1 => ncclDataType_t::ncclUint8,
            2 => ncclDataType_t::ncclBfloat16,
            4 => ncclDataType_t::ncclFloat32,
            _ => ncclDataType_t::ncclInt64,
        };
        Self { ranks, dtype, element, src: Side::parse(src), dst: Side::parse(dst) }
    }

    /// A plain reshard of `n` bytes from rank 0 to rank 1.
    pub fn plain(n: usize) -> Self {
        Self::new(2, 1, &format!("{{1}}@0 [R] {n}"), &format!("{{1}}@1 [R] {n}"))
    }

    /// Bytes of the tile of a rank whose element with global index `i` is `value(i, byte)`.
    pub fn bytes(&self, side: &Side, rank: usize, value: impl Fn(usize, usize) -> u8) -> Vec<u8> {
        let element = |index: usize| (0..self.element).map(move |byte| (index, byte));
        let indices = side.tile(rank).into_iter().flat_map(element);
        indices.map(|(index, byte)| value(index, byte)).collect()
    }

    pub fn buffers(&self, rank: usize, value: impl Fn(usize, usize) -> u8) -> Buffers {
        let src = self.src.has(rank).then(|| Tile::of(&self.bytes(&self.src, rank, value)));
        let dst = self.dst.has(rank).then(|| Tile::new(self.dst.elements() * self.element));
        Buffers { src, dst }
    }

    pub fn call(&self, comm: ncclComm_t, buffers: &mut Buffers) -> ncclResult_t {
        self.call_with(comm, 0, buffers)
    }

    /// The same with the handle of this token.
    pub fn call_with(&self, comm: ncclComm_t, token: usize, buffers: &mut Buffers) -> ncclResult_t {
        let pointer = |tile: &mut Option<Tile>| tile.as_mut().map_or(null_mut(), Tile::pointer);
        let mut src = Descriptor::new(&self.src, self.dtype, pointer(&mut buffers.src));
        let mut dst = Descriptor::new(&self.dst, self.dtype, pointer(&mut buffers.dst));
        let handle = without_provenance_mut(token);
        // SAFETY: the communicator is live; the descriptors are this frame's, and the tiles the
        // caller's.
        unsafe { (api().ncclReshard)(handle, comm, src.raw(), dst.raw(), null_mut()) }
    }

    /// Reshards and checks everything: the destination tiles against the oracle, canaries, and
    /// that sources are as they were.
    #[track_caller]
    pub fn run(&self, comm: &Comm) {
        let (rank, mut buffers) = (comm.rank(), self.buffers(comm.rank(), pattern));
        ok(self.call(comm.as_raw(), &mut buffers));
        self.check(rank, &buffers);
    }

    #[track_caller]
    pub fn check(&self, rank: usize, buffers: &Buffers) {
        let tiles = [(&buffers.src, &self.src, "source"), (&buffers.dst, &self.dst, "destination")];
        for (tile, side, name) in tiles {
            if let Some(tile) = tile {
                tile.check();
                let expected = self.bytes(side, rank, pattern);
                assert!(tile.data() == expected, "rank {rank}, {name}: {self:?}");
            }
        }
    }
}

/// What a rank gives to a call.
#[derive(Debug, Clone)]
pub struct Buffers {
    pub src: Option<Tile>,
    pub dst: Option<Tile>,
}

/// A byte that tells its element, and which of the element's bytes it is.
pub fn pattern(index: usize, byte: usize) -> u8 {
    (index.wrapping_mul(0x9E37_79B1) >> 7).wrapping_add(byte * 53 + index) as u8
}

/// A handle's token.
pub fn init() -> usize {
    let mut handle = null_mut();
    // SAFETY: `handle` can be written, and no configuration is a valid one.
    ok(unsafe { (api().ncclM2nInit)(&mut handle, null()) });
    handle.addr()
}

/// 0 is the default handle.
pub fn finalize(token: usize) {
    // SAFETY: a handle is a token: the library looks it up, and does not read it.
    ok(unsafe { (api().ncclM2nFinalize)(without_provenance_mut(token)) });
}

pub fn group_start() {
    // SAFETY: the function has no arguments.
    ok(unsafe { (api().ncclM2nGroupStart)() });
}

pub fn group_end() -> ncclResult_t {
    // SAFETY: the function has no arguments; buffers of queued calls are the test's.
    unsafe { (api().ncclM2nGroupEnd)() }
}
