//! One side of a reshard: a layout with this rank's memory.

use core::ffi::c_void;
use std::fmt;

use nccl_ext_core::{MemorySpace, RawBuffer};

use crate::layout::Layout;

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
    /// A side whose memory, where there is some, belongs to a buffer.
    pub(super) fn new(layout: &Layout, buffer: Option<RawBuffer>) -> Self {
        Self { layout: *layout, buffer }
    }

    /// A side over memory that something else manages.
    pub(super) fn unowned(ptr: *mut c_void, layout: &Layout, memory: MemorySpace) -> Self {
        let (data_type, shape) = (layout.data_type(), layout.local_shape());
        Self::new(layout, Some(RawBuffer::unowned(ptr, data_type, &shape, memory)))
    }

    /// The memory, where the rank holds a tile.
    pub(crate) fn tile_of(&self, rank: usize) -> Option<&RawBuffer> {
        self.buffer.as_ref().filter(|_| self.layout.contains(rank))
    }

    pub(super) fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({}, ", self.layout)?;
        match &self.buffer {
            Some(buffer) => write!(f, "{})", buffer.memory),
            None => f.write_str("no tile)"),
        }
    }
}
