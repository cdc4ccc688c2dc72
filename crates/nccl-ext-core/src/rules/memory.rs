//! Rules of memory that a call is given.

use crate::backend::Backend;
use crate::memory::RawBuffer;
use crate::rules;

/// Memory, and the backend that shall use it.
pub(crate) struct MemoryFacts {
    pub(crate) argument: &'static str,
    pub(crate) buffer: RawBuffer,
    pub(crate) backend: Backend,
}

impl MemoryFacts {
    fn fits(&self) -> bool {
        let Self { buffer, backend, .. } = self;
        buffer.memory == backend.memory() && buffer.backend.is_none_or(|other| other == *backend)
    }

    fn found(&self) -> String {
        let memory = self.buffer.memory;
        match self.buffer.backend {
            Some(other) => format!("{memory} of backend {}", other.name()),
            None => memory.to_string(),
        }
    }
}

rules! {
    /// Checked for all memory.
    BACKEND over plain MemoryFacts {
        "memory.backend" on "any buffer": "memory belongs to the communicator's backend"
            ("book design.md", Local)
            |f| !f.fits()
                => (format!("{} of backend {}", f.backend.memory(), f.backend.name()), f.found())
                on f.argument;
    }
}

/// What the driver knows of a pointer.
pub(crate) struct PointerFacts {
    pub(crate) argument: &'static str,
    /// What it is instead of device memory.
    pub(crate) other: Option<&'static str>,
}

rules! {
    /// Checked for pointers where the driver is asked.
    DEVICE over plain PointerFacts {
        "memory.device" on "any buffer": "a tensor of this backend is device memory"
            ("CUDA cuPointerGetAttribute", Local)
            |f| f.other => |other| ("device memory", other) on f.argument;
    }
}
