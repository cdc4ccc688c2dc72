//! One side of a reshard: a layout with this rank's memory.

use core::ffi::c_void;
use std::fmt;

use nccl_ext_core::{MemorySpace, RawBuffer, Use};

use crate::layout::Layout;

/// What both kinds of side are.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) layout: Layout,
    pub(crate) buffer: Option<RawBuffer>,
    /// The use of the buffer by a call.
    used: Use<'a>,
}

// SAFETY: an address, numbers, and hooks that any thread may call. The memory behind it is borrowed by the tensor types below, and the
// contract of `DeviceBuffer`, or of whoever gave the address, lets any thread use it meanwhile.
unsafe impl Send for Side<'_> {}
// SAFETY: as above.
unsafe impl Sync for Side<'_> {}

impl<'a> Side<'a> {
    /// A side whose memory, where there is some, belongs to a buffer.
    pub(super) fn new(layout: &Layout, buffer: Option<RawBuffer>, used: Use<'a>) -> Self {
        Self { layout: *layout, buffer, used }
    }

    /// A side over memory that something else manages.
    pub(super) fn unowned(ptr: *mut c_void, layout: &Layout, memory: MemorySpace) -> Self {
        let (data_type, shape) = (layout.data_type(), layout.local_shape());
        Self::new(layout, Some(RawBuffer::unowned(ptr, data_type, &shape, memory)), Use::NONE)
    }

    /// The memory, where the rank holds a tile.
    pub(crate) fn tile_of(&self, rank: usize) -> Option<&RawBuffer> {
        self.buffer.as_ref().filter(|_| self.layout.contains(rank))
    }

    /// The use of the memory, where the rank holds a tile.
    pub(crate) fn use_of(&self, rank: usize) -> Use<'a> {
        if self.layout.contains(rank) { self.used } else { Use::NONE }
    }

    pub(super) fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({}, ", self.layout)?;
        match &self.buffer {
            Some(buffer) => write!(f, "{})", buffer.memory),
            None => f.write_str("no tile)"),
        }
    }
}
