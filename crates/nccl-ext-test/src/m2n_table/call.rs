//! The arguments of a reshard, each of which a row may change.

use std::ptr::{null, null_mut, without_provenance_mut};

use nccl_ext_core::raw::{ncclComm_t, ncclDataType_t, ncclResult_t};
use nccl_m2n_sys::*;

/// Bytes that each rank's tiles lie in.
pub(super) const MEMORY: usize = 1 << 13;
/// Where destinations begin by default.
const DESTINATIONS: usize = MEMORY / 2;

#[derive(Debug, Clone, Copy)]
pub enum Comm {
    Given,
    Null,
    /// A pointer to nothing, for calls that do not follow it.
    Fake(usize),
}

#[derive(Debug, Clone, Copy)]
pub enum Handle {
    Null,
    /// What an earlier step made.
    Slot(usize),
    Fake(usize),
}

impl Handle {
    pub fn raw(self, handles: &[ncclM2nHandle_t]) -> ncclM2nHandle_t {
        match self {
            Self::Null => null_mut(),
            Self::Slot(slot) => handles[slot],
            Self::Fake(value) => without_provenance_mut(value),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Data {
    Null,
    /// In the rank's memory.
    Offset(usize),
}

pub struct Mesh {
    pub size: usize,
    pub version: u32,
    pub ndims: i32,
    pub dims: Option<Vec<i32>>,
    pub start: i32,
}

pub struct Tensor {
    pub size: usize,
    pub version: u32,
    pub data: Data,
    pub shape: Option<Vec<usize>>,
    pub ndims: i32,
    pub dtype: ncclDataType_t,
    pub mesh: Option<Mesh>,
    pub placements: Option<Vec<i32>>,
}

pub struct ReshardCall {
    pub handle: Handle,
    pub comm: Comm,
    pub src: Option<Tensor>,
    pub dst: Option<Tensor>,
    pub stream: usize,
}

impl Tensor {
    fn new(start: i32, data: usize) -> Self {
        Self {
            size: 56,
            version: 2,
            data: Data::Offset(data),
            shape: Some(vec![4]),
            ndims: 1,
            dtype: ncclDataType_t::ncclUint8,
            mesh: Some(Mesh { size: 32, version: 2, ndims: 1, dims: Some(vec![1]), start }),
            placements: Some(vec![NCCL_RESHARD_REPLICATE]),
        }
    }

    pub fn mesh(&mut self) -> &mut Mesh {
        self.mesh.as_mut().unwrap()
    }

    /// Ranks and placements.
    pub fn on(&mut self, dims: &[i32], start: i32, placements: &[i32]) -> &mut Self {
        let mesh = self.mesh();
        (mesh.ndims, mesh.dims, mesh.start) = (dims.len() as i32, Some(dims.to_vec()), start);
        self.placements = Some(placements.to_vec());
        self
    }

    pub fn shaped(&mut self, shape: &[usize]) -> &mut Self {
        (self.ndims, self.shape) = (shape.len() as i32, Some(shape.to_vec()));
        self
    }
}

/// The C structures of one tensor; what they point to is the tensor's.
struct Raw {
    mesh: ncclMesh_t,
    tensor: ncclDistTensor_t,
}

impl Raw {
    fn new(tensor: &mut Tensor, memory: *mut u8) -> Box<Self> {
        let array =
            |array: &mut Option<Vec<i32>>| array.as_mut().map_or(null_mut(), Vec::as_mut_ptr);
        let mut mesh = ncclMesh_t::init();
        if let Some(given) = &mut tensor.mesh {
            (mesh.size, mesh.version, mesh.ndims) = (given.size, given.version, given.ndims);
            (mesh.dims, mesh.startRank) = (array(&mut given.dims), given.start);
        }
        let data = match tensor.data {
            Data::Null => null_mut(),
            // SAFETY: a row's offsets are within the memory that it is run with.
            Data::Offset(offset) => unsafe { memory.add(offset) },
        };
        let raw = ncclDistTensor_t {
            size: tensor.size,
            version: tensor.version,
            dataPtr: data.cast(),
            localShape: tensor.shape.as_mut().map_or(null_mut(), Vec::as_mut_ptr),
            ndims: tensor.ndims,
            dtype: tensor.dtype,
            mesh: null(),
            placements: array(&mut tensor.placements),
        };
        let mut this = Box::new(Self { mesh, tensor: raw });
        if tensor.mesh.is_some() {
            this.tensor.mesh = &raw const this.mesh;
        }
        this
    }
}

impl ReshardCall {
    /// Four bytes from rank 0 to rank 1, in memory that no other step uses.
    pub fn new(step: usize) -> Self {
        Self {
            handle: Handle::Null,
            comm: Comm::Given,
            src: Some(Tensor::new(0, 64 * step)),
            dst: Some(Tensor::new(1, DESTINATIONS + 64 * step)),
            stream: 0,
        }
    }

    pub fn src(&mut self) -> &mut Tensor {
        self.src.as_mut().unwrap()
    }

    pub fn dst(&mut self) -> &mut Tensor {
        self.dst.as_mut().unwrap()
    }

    pub fn shaped(&mut self, shape: &[usize]) {
        self.src().shaped(shape);
        self.dst().shaped(shape);
    }

    pub fn nothing(&mut self) {
        (self.comm, self.src, self.dst) = (Comm::Null, None, None);
    }

    pub fn run(
        &mut self,
        api: &M2nApi,
        comm: ncclComm_t,
        memory: &mut [u8],
        handles: &[ncclM2nHandle_t],
        window: bool,
    ) -> ncclResult_t {
        let memory = memory.as_mut_ptr();
        let comm = match self.comm {
            Comm::Given => comm,
            Comm::Null => null_mut(),
            Comm::Fake(value) => without_provenance_mut(value),
        };
        let src = self.src.as_mut().map(|tensor| Raw::new(tensor, memory));
        let dst = self.dst.as_mut().map(|tensor| Raw::new(tensor, memory));
        let pointer =
            |raw: &Option<Box<Raw>>| raw.as_ref().map_or(null(), |raw| &raw const raw.tensor);
        let (src, dst) = (pointer(&src), pointer(&dst));
        let (handle, stream) = (self.handle.raw(handles), without_provenance_mut(self.stream));
        // SAFETY: the communicator is the caller's; descriptors are null or this frame's, and what
        // is wrong in them is refused before their data is used.
        unsafe {
            match window {
                false => (api.ncclReshard)(handle, comm, src, dst, stream),
                true => (api.ncclReshardWithWindow)(handle, comm, null_mut(), src, dst, stream),
            }
        }
    }
}
