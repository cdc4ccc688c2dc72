//! One side of a reshard: a layout with this rank's memory.

use core::ffi::c_void;
use std::fmt;

use nccl_ext_core::{MemorySpace, RawBuffer, Usage};

use crate::layout::Layout;

/// What both kinds of side are.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) layout: Layout,
    pub(crate) buffer: Option<RawBuffer>,
    /// What orders uses of the buffer.
    usage: Option<&'a dyn Usage>,
}

// SAFETY: an address, numbers, and hooks that any thread may call. The memory behind it is borrowed by the tensor types below, and the
// contract of `DeviceBuffer`, or of whoever gave the address, lets any thread use it meanwhile.
unsafe impl Send for Side<'_> {}
// SAFETY: as above.
unsafe impl Sync for Side<'_> {}

impl<'a> Side<'a> {
    /// A side whose memory, where there is some, belongs to a buffer.
    pub(super) fn new(
        layout: &Layout,
        buffer: Option<RawBuffer>,
        usage: Option<&'a dyn Usage>,
    ) -> Self {
        Self { layout: *layout, buffer, usage }
    }

    /// A side over memory that something else manages.
    pub(super) fn unowned(ptr: *mut c_void, layout: &Layout, memory: MemorySpace) -> Self {
        let (data_type, shape) = (layout.data_type(), layout.local_shape());
        Self::new(layout, Some(RawBuffer::unowned(ptr, data_type, &shape, memory)), None)
    }

    /// The memory, where the rank holds a tile.
    pub(crate) fn tile_of(&self, rank: usize) -> Option<&RawBuffer> {
        self.buffer.as_ref().filter(|_| self.layout.contains(rank))
    }

    /// What orders uses of the memory, where the rank holds a tile.
    pub(crate) fn usage_of(&self, rank: usize) -> Option<&'a dyn Usage> {
        self.usage.filter(|_| self.layout.contains(rank))
    }

    pub(super) fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({}, ", self.layout)?;
        match &self.buffer {
            Some(buffer) => write!(f, "{})", buffer.memory),
            None => f.write_str("no tile)"),
        }
    }
}
