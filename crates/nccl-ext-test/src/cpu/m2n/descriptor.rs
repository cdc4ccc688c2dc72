//! Descriptors that own what they point to.

use nccl_ext_core::raw::ncclDataType_t;
use nccl_m2n_sys::{VersionedStruct, ncclDistTensor_t, ncclMesh_t};

use super::TensorSide;

/// A descriptor's arrays; [`raw`](Self::raw) gives the C structures over them.
#[derive(Debug)]
pub struct OwnedDescriptor {
    pub dims: Vec<i32>,
    pub placements: Vec<i32>,
    pub shape: Vec<usize>,
    pub mesh: ncclMesh_t,
    pub tensor: ncclDistTensor_t,
}

impl OwnedDescriptor {
    pub fn new(side: &TensorSide, dtype: ncclDataType_t, data: *mut u8) -> Box<Self> {
        let TensorSide { dims, start, placements, shape } = side.clone();
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
