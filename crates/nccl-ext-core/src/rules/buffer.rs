//! Rules of buffers of a backend's memory.

use crate::device::Device;
use crate::rules;

/// A buffer that is to be made.
pub(crate) struct SizeFacts {
    pub(crate) len: usize,
    /// Bytes of an element.
    pub(crate) element: usize,
}

impl SizeFacts {
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.len.checked_mul(self.element)
    }
}

rules! {
    /// Checked when a buffer is made.
    SIZE over plain SizeFacts {
        "buffer.size" on "len": "a buffer's size fits the address space"
            ("NCCL ncclMemAlloc", Local)
            |f| f.bytes().is_none()
                => (format!("at most {} elements", usize::MAX / f.element), f.len);
    }
}

/// A copy into a buffer or out of it, in elements.
pub(crate) struct CopyFacts {
    pub(crate) offset: usize,
    pub(crate) count: usize,
    /// What the buffer holds.
    pub(crate) len: usize,
}

impl CopyFacts {
    fn inside(&self) -> bool {
        self.offset.checked_add(self.count).is_some_and(|end| end <= self.len)
    }

    fn found(&self) -> String {
        match self.offset {
            0 => self.count.to_string(),
            _ => format!("{} from element {} of {} on", self.count, self.offset, self.len),
        }
    }
}

rules! {
    /// Checked by every copy between a buffer and other memory.
    COPY over plain CopyFacts {
        "buffer.copy-inside" on "data": "a copy stays inside the buffer"
            ("CUDA cuMemcpyHtoDAsync", Local)
            |f| !f.inside()
                => (format!("at most {} elements", f.len.saturating_sub(f.offset)), f.found());
    }
}

/// A copy between pinned memory of the host and a buffer.
pub(crate) struct PinnedFacts {
    pub(crate) pinned: Device,
    pub(crate) buffer: Device,
}

rules! {
    /// Checked by copies that only enqueue.
    PINNED over plain PinnedFacts {
        "buffer.pinned-place" on "pinned memory":
            "pinned memory is copied from and to buffers of the device that it was made for"
            ("book design.md", Local)
            |f| f.pinned != f.buffer
                => (format!("memory for {}", f.buffer), format!("for {}", f.pinned));
    }
}
