//! Distributed tensors: a layout, and this rank's part of the memory.

use core::ffi::{c_int, c_void};
use std::fmt;
use std::marker::PhantomData;

use nccl_ext_core::{DeviceBuffer, DeviceBufferMut, MemorySpace, RawBuffer};
use nccl_m2n_sys::{VersionedStruct, ncclDistTensor_t, ncclMesh_t};

use crate::layout::Layout;
use crate::mesh::MAX_MESH_DIMS;
use crate::shape::MAX_TENSOR_DIMS;

/// What a side is, without its lifetime.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) layout: Layout,
    pub(crate) buffer: Option<RawBuffer>,
}

// SAFETY: an address and numbers. The memory behind it is borrowed by the tensor types below, and the
// contract of `DeviceBuffer`, or of whoever gave the address, lets any thread use it meanwhile.
unsafe impl Send for Side {}
// SAFETY: as above.
unsafe impl Sync for Side {}

impl Side {
    /// The memory, where the rank holds a tile.
    pub(crate) fn tile_of(&self, rank: usize) -> Option<&RawBuffer> {
        self.buffer.as_ref().filter(|_| self.layout.contains(rank))
    }

    fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({}, ", self.layout)?;
        match &self.buffer {
            Some(buffer) => write!(f, "{})", buffer.memory),
            None => f.write_str("no tile)"),
        }
    }
}

/// The side that is read.
///
/// Borrows the memory of this rank's tile: it cannot be dropped or written meanwhile. A rank
/// outside of the mesh passes none; memory that it passes anyway is not looked at. Whether the
/// memory fits is checked by the call, so that its error can reach the other ranks too.
#[derive(Clone, Copy)]
#[doc(alias = "ncclDistTensor_t")]
pub struct DistTensor<'a> {
    side: Side,
    memory: PhantomData<&'a ()>,
}

/// The side that is written.
///
/// As [`DistTensor`], with the memory borrowed mutably: nothing else touches it meanwhile.
#[doc(alias = "ncclDistTensor_t")]
pub struct DistTensorMut<'a> {
    side: Side,
    memory: PhantomData<&'a mut ()>,
}

impl<'a> DistTensor<'a> {
    /// This rank's tile is at the front of `buffer`, dense and row-major.
    ///
    /// The buffer has the layout's element type; bytes will do for the 8-bit floats.
    pub fn new<B: DeviceBuffer + ?Sized>(buffer: &'a B, layout: &Layout) -> Self {
        Self::optional(Some(buffer), layout)
    }

    /// This rank holds no tile of the side.
    #[must_use]
    pub fn inactive(layout: &Layout) -> Self {
        Self { side: Side { layout: *layout, buffer: None }, memory: PhantomData }
    }

    /// A tile where there is one: for code that every rank runs.
    pub fn optional<B: DeviceBuffer + ?Sized>(buffer: Option<&'a B>, layout: &Layout) -> Self {
        let buffer = buffer.map(DeviceBuffer::raw);
        Self { side: Side { layout: *layout, buffer }, memory: PhantomData }
    }

    /// A tile over memory that something else manages.
    ///
    /// # Safety
    /// `ptr` points to [`Layout::local_bytes`] bytes in `memory`; they are valid to read, and not
    /// written, for `'a` and until everything enqueued with this tensor has run.
    #[must_use]
    pub unsafe fn from_raw(ptr: *const c_void, layout: &Layout, memory: MemorySpace) -> Self {
        let (data_type, shape) = (layout.data_type(), layout.local_shape());
        let buffer = Some(RawBuffer::unowned(ptr.cast_mut(), data_type, &shape, memory));
        Self { side: Side { layout: *layout, buffer }, memory: PhantomData }
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.side.layout
    }

    /// Whether memory was passed.
    #[must_use]
    pub fn is_participating(&self) -> bool {
        self.side.buffer.is_some()
    }

    pub(crate) fn side(&self) -> &Side {
        &self.side
    }
}

impl<'a> DistTensorMut<'a> {
    /// As [`DistTensor::new`], to be written.
    pub fn new<B: DeviceBufferMut + ?Sized>(buffer: &'a mut B, layout: &Layout) -> Self {
        Self::optional(Some(buffer), layout)
    }

    /// This rank holds no tile of the side.
    #[must_use]
    pub fn inactive(layout: &Layout) -> Self {
        Self { side: Side { layout: *layout, buffer: None }, memory: PhantomData }
    }

    /// A tile where there is one: for code that every rank runs.
    pub fn optional<B: DeviceBufferMut + ?Sized>(
        buffer: Option<&'a mut B>,
        layout: &Layout,
    ) -> Self {
        let buffer = buffer.map(DeviceBufferMut::raw_mut);
        Self { side: Side { layout: *layout, buffer }, memory: PhantomData }
    }

    /// A tile over memory that something else manages.
    ///
    /// # Safety
    /// `ptr` points to [`Layout::local_bytes`] bytes in `memory`; they are valid to read and write,
    /// and touched by nothing else, for `'a` and until everything enqueued with this tensor has
    /// run.
    #[must_use]
    pub unsafe fn from_raw(ptr: *mut c_void, layout: &Layout, memory: MemorySpace) -> Self {
        let (data_type, shape) = (layout.data_type(), layout.local_shape());
        let buffer = Some(RawBuffer::unowned(ptr, data_type, &shape, memory));
        Self { side: Side { layout: *layout, buffer }, memory: PhantomData }
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.side.layout
    }

    /// Whether memory was passed.
    #[must_use]
    pub fn is_participating(&self) -> bool {
        self.side.buffer.is_some()
    }

    pub(crate) fn side(&self) -> &Side {
        &self.side
    }
}

impl fmt::Debug for DistTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.side.fmt("DistTensor", f)
    }
}

impl fmt::Debug for DistTensorMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.side.fmt("DistTensorMut", f)
    }
}

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
    pub(crate) fn new(side: &Side, rank: usize) -> Self {
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
    use crate::{DataType, Mesh};

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
