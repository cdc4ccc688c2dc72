//! Rules of memory that a call is given.

use crate::device::Device;
use crate::raw_buffer::RawBuffer;
use crate::rules;

/// Memory, and the device that shall use it.
pub(crate) struct MemoryFacts {
    pub(crate) argument: &'static str,
    pub(crate) buffer: RawBuffer,
    pub(crate) device: Device,
}

impl MemoryFacts {
    fn fits(&self) -> bool {
        let Self { buffer, device, .. } = self;
        buffer.memory == device.backend().memory()
            && buffer.backend.is_none_or(|other| other == device.backend())
            && buffer.ordinal.is_none_or(|other| other == device.ordinal())
    }

    /// The address, if elements of the type cannot lie there. Empty memory may dangle.
    fn misplaced(&self) -> Option<usize> {
        let RawBuffer { ptr, bytes, data_type, .. } = self.buffer;
        (bytes > 0 && !ptr.addr().is_multiple_of(data_type.size())).then(|| ptr.addr())
    }

    fn found(&self) -> String {
        let RawBuffer { memory, backend, ordinal, .. } = self.buffer;
        match (backend, ordinal) {
            (Some(backend), Some(ordinal)) => {
                format!("{memory} of {}", Device::new(backend, ordinal))
            }
            (Some(backend), None) => format!("{memory} of backend {}", backend.name()),
            (None, Some(ordinal)) => format!("{memory} of device {ordinal}"),
            (None, None) => memory.to_string(),
        }
    }
}

rules! {
    /// Checked for all memory.
    PLACE over plain MemoryFacts {
        "memory.place" on "any buffer": "memory is on the device that uses it"
            ("book design.md", Local)
            |f| !f.fits()
                => (format!("{} of {}", f.device.backend().memory(), f.device), f.found())
                on f.argument;
        "memory.alignment" on "any buffer": "memory starts at a multiple of its element's size"
            ("book design.md", Local)
            |f| f.misplaced()
                => |address| (format!("a multiple of {} bytes", f.buffer.data_type.size()),
                    format!("{address:#x}")) on f.argument;
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
