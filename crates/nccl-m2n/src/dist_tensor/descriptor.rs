//! Sides as the C functions take them.

use core::ffi::c_int;

use nccl_m2n_sys::{VersionedStruct, ncclDistTensor_t, ncclMesh_t};

use super::side::Side;
use crate::mesh::MAX_MESH_DIMS;
use crate::shape::MAX_TENSOR_DIMS;

/// C descriptors of one side, on the stack of the call that uses them.
pub(crate) struct Descriptor {
    tensor: ncclDistTensor_t,
    mesh: ncclMesh_t,
    dims: [c_int; MAX_MESH_DIMS],
    placements: [c_int; MAX_MESH_DIMS],
    shape: [usize; MAX_TENSOR_DIMS],
}

impl Descriptor {
    /// Describes a side as `rank` passes it: without memory where it holds no tile, so that what
    /// it may have passed counts for nothing.
    pub(crate) fn new(side: &Side<'_>, rank: usize) -> Self {
        let layout = &side.layout;
        let mesh = layout.mesh();
        let mut placements = [0; MAX_MESH_DIMS];
        for (to, from) in placements.iter_mut().zip(layout.placements()) {
            *to = from.as_raw();
        }
        let int = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
        let mut descriptor = Self {
            tensor: ncclDistTensor_t::init(),
            mesh: ncclMesh_t::init(),
            dims: mesh.padded_dims().map(int),
            placements,
            shape: layout.local_shape().padded(),
        };
        descriptor.mesh.ndims = int(mesh.ndims());
        descriptor.mesh.startRank = int(mesh.start_rank());
        let tile = side.tile_of(rank);
        descriptor.tensor.dataPtr = tile.map_or(core::ptr::null_mut(), |tile| tile.ptr);
        descriptor.tensor.ndims = int(layout.local_shape().len());
        descriptor.tensor.dtype = layout.data_type().as_raw();
        descriptor
    }

    /// The pointer to hand over. It is good as long as the descriptor does not move.
    pub(crate) fn bind(&mut self) -> *const ncclDistTensor_t {
        self.mesh.dims = self.dims.as_mut_ptr();
        self.tensor.mesh = &raw const self.mesh;
        self.tensor.localShape = self.shape.as_mut_ptr();
        self.tensor.placements = self.placements.as_mut_ptr();
        &raw const self.tensor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Placement::{Replicate, Shard};
    use crate::{DataType, DistTensor, Layout, MemorySpace, Mesh};

    #[test]
    fn descriptors_carry_every_field() {
        let mesh = Mesh::new(&[2, 3], 4).unwrap();
        let layout =
            Layout::new(mesh, &[Replicate, Shard(-1)], &[5, 7], DataType::Float16).unwrap();
        let data = [0_u16; 35];
        // SAFETY: the tensor is only looked at.
        let tensor =
            unsafe { DistTensor::from_raw(data.as_ptr().cast(), &layout, MemorySpace::Host) };
        assert_eq!(format!("{tensor:?}"), "DistTensor({2,3}@4 [R,S1] 5x7 fp16, host memory)");
        let mut descriptor = Descriptor::new(tensor.side(), 4);
        // SAFETY: the descriptor is bound and does not move.
        let (raw, mesh) = unsafe {
            let raw = *descriptor.bind();
            (raw, *raw.mesh)
        };
        assert_eq!((raw.size, raw.version, raw.ndims, raw.dtype.0), (56, 2, 2, 6));
        assert_eq!(raw.dataPtr.cast_const(), data.as_ptr().cast());
        assert_eq!((mesh.size, mesh.version, mesh.ndims, mesh.startRank), (32, 2, 2, 4));
        // SAFETY: as above; the arrays have as many entries as the counts say.
        unsafe {
            assert_eq!(core::slice::from_raw_parts(mesh.dims, 2), [2, 3]);
            assert_eq!(core::slice::from_raw_parts(raw.placements, 2), [-1, 1]);
            assert_eq!(core::slice::from_raw_parts(raw.localShape, 2), [5, 7]);
        }
        // A rank outside of the mesh passes no memory, whatever it has.
        let mut descriptor = Descriptor::new(tensor.side(), 3);
        // SAFETY: as above.
        assert!(unsafe { (*descriptor.bind()).dataPtr.is_null() });
        let inactive = DistTensor::inactive(&layout);
        assert!(!inactive.is_participating() && tensor.is_participating());
    }
}
