//! Rules of streams.

use crate::device::Device;
use crate::rules;

/// A stream of ours, and the device that shall use it.
pub(crate) struct StreamFacts {
    /// The stream's device, where it is known.
    pub(crate) stream: Option<Device>,
    pub(crate) device: Device,
}

rules! {
    /// Checked for all streams.
    PLACE over plain StreamFacts {
        "stream.place" on "stream": "work is enqueued on a stream of its own device"
            ("CUDA cuLaunchKernel", Local)
            |f| f.stream.filter(|stream| *stream != f.device)
                => |other| (format!("a stream of {}", f.device), format!("one of {other}"));
    }
}
