//! Whether memory is where a call needs it, and starts where its elements can lie.

use crate::device::Device;
use crate::error::Result;
use crate::raw_buffer::RawBuffer;
use crate::rules;
use crate::rules::memory::{MemoryFacts, PLACE};

impl Device {
    /// Refuses memory that is not on this device, or starts where its elements cannot lie.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), naming both places, for memory of another space,
    /// backend or device, or at an address that is no multiple of the element's size.
    pub fn check_memory(self, argument: &'static str, buffer: &RawBuffer) -> Result<()> {
        let facts = MemoryFacts { argument, buffer: *buffer, device: self };
        rules::check(PLACE, |broken| broken(&facts))
    }
}
