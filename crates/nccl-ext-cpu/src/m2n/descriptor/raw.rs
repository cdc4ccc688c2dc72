//! The caller's descriptors, copied before anything else happens (M2N 1.4, 1.6).

use core::ffi::{c_int, c_uint};

use nccl_ext_core::raw::ncclDataType_t;
use nccl_m2n_sys::{
    NCCL_RESHARD_MAX_MESH_DIMS, NCCL_RESHARD_MAX_TENSOR_DIMS, ncclDistTensor_t, ncclMesh_t,
};

pub(crate) const MESH_DIMS: usize = NCCL_RESHARD_MAX_MESH_DIMS as usize;
pub(crate) const TENSOR_DIMS: usize = NCCL_RESHARD_MAX_TENSOR_DIMS as usize;

/// How a versioned structure starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) size: usize,
    pub(crate) version: c_uint,
}

impl Header {
    /// Whether the rest of a `T` is there and means what this library thinks it does.
    fn covers<T>(self) -> bool {
        self.size >= size_of::<T>() && self.version == nccl_m2n_sys::NCCL_M2N_API_VERSION
    }
}

/// A copy of an `ncclDistTensor_t` and of everything it points to except the data.
///
/// What lies beyond a bad header, and arrays whose length is out of range, are not read: the
/// checks refuse them before they look at the copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawTensor {
    pub(crate) header: Header,
    pub(crate) data: *mut u8,
    pub(crate) ndims: c_int,
    pub(crate) shape: Option<[usize; TENSOR_DIMS]>,
    pub(crate) dtype: ncclDataType_t,
    pub(crate) mesh: Option<RawMesh>,
    pub(crate) placements: Option<[c_int; MESH_DIMS]>,
}

/// A copy of an `ncclMesh_t`, likewise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMesh {
    pub(crate) header: Header,
    pub(crate) ndims: c_int,
    pub(crate) dims: Option<[c_int; MESH_DIMS]>,
    pub(crate) start: c_int,
}

/// The first `count` elements of an array, if there is one and `count` is in range.
///
/// # Safety
/// `array` is NULL or holds `count` elements.
unsafe fn copy<T: Copy + Default, const N: usize>(array: *const T, count: c_int) -> Option<[T; N]> {
    if array.is_null() {
        return None;
    }
    let mut copied = [T::default(); N];
    if let Some(count) = usize::try_from(count).ok().filter(|&count| count <= N) {
        // SAFETY: this function's contract; the copy has room for `N` elements.
        unsafe { core::ptr::copy_nonoverlapping(array, copied.as_mut_ptr(), count) };
    }
    Some(copied)
}

impl RawTensor {
    /// `None` for NULL.
    ///
    /// # Safety
    /// `tensor` is NULL or a descriptor as the C API describes it.
    pub(crate) unsafe fn read(tensor: *const ncclDistTensor_t) -> Option<Self> {
        if tensor.is_null() {
            return None;
        }
        // SAFETY: the contract: a descriptor has its two head fields at least.
        let header = unsafe {
            let (size, version) = (&raw const (*tensor).size, &raw const (*tensor).version);
            Header { size: size.read(), version: version.read() }
        };
        if !header.covers::<ncclDistTensor_t>() {
            return Some(Self {
                header,
                data: core::ptr::null_mut(),
                ndims: 0,
                shape: None,
                dtype: ncclDataType_t(0),
                mesh: None,
                placements: None,
            });
        }
        // SAFETY: it is as large as this library's structure and has its layout.
        let tensor = unsafe { tensor.read() };
        // SAFETY: the contract.
        let mesh = unsafe { RawMesh::read(tensor.mesh) };
        let axes = mesh.map_or(0, |mesh| mesh.ndims);
        // SAFETY: the contract: `ndims` extents, and a placement for each axis of the mesh.
        let (shape, placements) =
            unsafe { (copy(tensor.localShape, tensor.ndims), copy(tensor.placements, axes)) };
        Some(Self {
            header,
            data: tensor.dataPtr.cast(),
            ndims: tensor.ndims,
            shape,
            dtype: tensor.dtype,
            mesh,
            placements,
        })
    }
}

impl RawMesh {
    /// # Safety
    /// `mesh` is NULL or a descriptor as the C API describes it.
    unsafe fn read(mesh: *const ncclMesh_t) -> Option<Self> {
        if mesh.is_null() {
            return None;
        }
        // SAFETY: the contract: a descriptor has its two head fields at least.
        let header = unsafe {
            let (size, version) = (&raw const (*mesh).size, &raw const (*mesh).version);
            Header { size: size.read(), version: version.read() }
        };
        if !header.covers::<ncclMesh_t>() {
            return Some(Self { header, ndims: 0, dims: None, start: 0 });
        }
        // SAFETY: it is as large as this library's structure and has its layout.
        let mesh = unsafe { mesh.read() };
        // SAFETY: the contract: `ndims` extents.
        let dims = unsafe { copy(mesh.dims, mesh.ndims) };
        Some(Self { header, ndims: mesh.ndims, dims, start: mesh.startRank })
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::null_mut;

    use nccl_m2n_sys::VersionedStruct;

    use super::*;

    #[test]
    fn only_what_the_header_vouches_for_is_read() {
        let mut shape = [5_usize, 6];
        let wild = core::ptr::without_provenance_mut(8);
        let mesh = ncclMesh_t { version: 9, dims: wild, ndims: 1, ..VersionedStruct::init() };
        let tensor = ncclDistTensor_t {
            localShape: shape.as_mut_ptr(),
            ndims: 2,
            mesh: &raw const mesh,
            placements: null_mut(),
            ..VersionedStruct::init()
        };
        // SAFETY: the shape has two extents; a mesh of another version is not followed.
        let copy = unsafe { RawTensor::read(&raw const tensor) }.unwrap();
        assert_eq!(copy.shape, Some([5, 6, 0]));
        assert!(copy.placements.is_none());
        assert!(copy.mesh.is_some_and(|mesh| mesh.header.version == 9 && mesh.dims.is_none()));

        let short = ncclDistTensor_t { size: 55, localShape: wild.cast(), ..tensor };
        // SAFETY: nothing beyond the head of a short structure is followed.
        let copy = unsafe { RawTensor::read(&raw const short) }.unwrap();
        assert!(copy.header.size == 55 && copy.shape.is_none() && copy.mesh.is_none());
        // SAFETY: NULL.
        assert!(unsafe { RawTensor::read(core::ptr::null()) }.is_none());
    }

    #[test]
    fn an_array_whose_length_is_out_of_range_is_not_read() {
        let wild = core::ptr::without_provenance::<c_int>(8);
        for count in [-1, 3, c_int::MAX] {
            // SAFETY: the count is out of range, so the pointer is not followed.
            assert_eq!(unsafe { copy::<_, MESH_DIMS>(wild, count) }, Some([0, 0]));
        }
    }
}
