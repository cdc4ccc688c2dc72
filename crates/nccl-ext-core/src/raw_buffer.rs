//! What memory is to the layers below.

use core::ffi::c_void;

use crate::backend::{Backend, MemorySpace};
use crate::data_type::DataType;
use crate::device::Device;

/// A buffer as the layers below see it: where it is and how long.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RawBuffer {
    /// First byte. May dangle when `bytes` is 0.
    pub ptr: *mut c_void,
    /// Length in bytes.
    pub bytes: usize,
    /// Element type.
    pub data_type: DataType,
    /// Which memory it is; compared with the backend's on every call.
    pub memory: MemorySpace,
    /// The backend that allocated it, where that is known: a buffer of another backend is refused.
    pub backend: Option<Backend>,
    /// The ordinal of its device, where that is known: a buffer of another device is refused.
    pub ordinal: Option<i32>,
}

impl RawBuffer {
    /// Ordinary host memory, such as a slice.
    #[must_use]
    pub const fn host(ptr: *mut c_void, bytes: usize, data_type: DataType) -> Self {
        Self::foreign(ptr, bytes, data_type, MemorySpace::Host, None)
    }

    /// Memory that a device's backend allocated on it.
    #[must_use]
    pub fn on(device: Device, ptr: *mut c_void, bytes: usize, data_type: DataType) -> Self {
        let (backend, ordinal) = (Some(device.backend()), Some(device.ordinal()));
        Self { ptr, bytes, data_type, memory: device.backend().memory(), backend, ordinal }
    }

    /// Memory that something else allocated, on the device of that ordinal; `None` when nobody
    /// knows which one, so that it passes on every device.
    #[must_use]
    pub const fn foreign(
        ptr: *mut c_void,
        bytes: usize,
        data_type: DataType,
        memory: MemorySpace,
        ordinal: Option<i32>,
    ) -> Self {
        Self { ptr, bytes, data_type, memory, backend: None, ordinal }
    }

    /// As [`foreign`](Self::foreign), exactly as long as a tensor of these extents, since whoever
    /// gives the pointer vouches for that. A length that overflows is 0.
    #[must_use]
    pub fn unowned(
        ptr: *mut c_void,
        data_type: DataType,
        extents: &[usize],
        memory: MemorySpace,
    ) -> Self {
        let bytes = extents.iter().try_fold(data_type.size(), |n, extent| n.checked_mul(*extent));
        Self::foreign(ptr, bytes.unwrap_or(0), data_type, memory, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unowned_memory_is_as_long_as_its_shape_says() {
        let bytes = |extents: &[usize]| {
            let (ptr, memory) = (core::ptr::null_mut(), MemorySpace::Host);
            RawBuffer::unowned(ptr, DataType::Float32, extents, memory).bytes
        };
        assert_eq!((bytes(&[3, 4]), bytes(&[3, 0]), bytes(&[])), (48, 0, 4));
        assert_eq!(bytes(&[usize::MAX, 2]), 0);
    }
}
