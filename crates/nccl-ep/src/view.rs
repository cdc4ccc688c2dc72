//! Tensors without their lifetimes: memory with a shape.

use std::fmt;

use nccl_ext_core::{DataType, RawBuffer};

/// Most dimensions a tensor here has.
pub const MAX_DIMS: usize = 4;

/// The extents of a tensor, at most [`MAX_DIMS`].
pub type Shape = nccl_ext_core::Shape<MAX_DIMS>;

/// What every tensor is, without its lifetime.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) buffer: RawBuffer,
    pub(crate) shape: Shape,
}

impl View {
    pub(crate) fn data_type(&self) -> DataType {
        self.buffer.data_type
    }

    /// The first extent.
    pub(crate) fn rows(&self) -> u64 {
        self.shape.first().map_or(0, |extent| *extent as u64)
    }

    /// The last extent: elements of a row.
    pub(crate) fn row_width(&self) -> u64 {
        self.shape.last().map_or(0, |extent| *extent as u64)
    }

    pub(crate) fn row_bytes(&self) -> u64 {
        self.row_width().saturating_mul(self.data_type().size() as u64)
    }

    pub(crate) fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({:?} {}, {})", self.shape, self.data_type(), self.buffer.memory)
    }
}

// SAFETY: an address and numbers. The memory behind it is borrowed by the tensor types of `crate::tensor`, and the
// contract of `DeviceBuffer`, or of whoever gave the address, lets any thread use it meanwhile.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}
