//! Memory that calls of a communicator are given.

use super::Comm;
use crate::backend::MemorySpace;
use crate::driver;
use crate::error::Result;
use crate::raw_buffer::RawBuffer;
use crate::rules::{self, memory};
use crate::stream::Stream;

impl Comm {
    /// Refuses memory that is not on this communicator's device, or starts where its elements cannot
    /// lie.
    ///
    /// # Errors
    /// As [`Device::check_memory`](crate::Device::check_memory).
    pub fn check_memory(&self, argument: &'static str, buffer: &RawBuffer) -> Result<()> {
        self.device().check_memory(argument, buffer)
    }

    /// Refuses a stream that is not on this communicator's device. Streams that something else owns
    /// ([`Stream::from_raw`]) and [`Stream::DEFAULT`] pass: their device is not known.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), naming both devices.
    pub fn check_stream(&self, stream: Stream<'_>) -> Result<()> {
        stream.check_on(self.device())
    }

    /// Refuses a pointer that the driver does not know as device memory. Host backends take any.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for memory of another kind;
    /// [`Error::Unsupported`](crate::Error::Unsupported) without the driver function.
    #[doc(alias = "cuPointerGetAttribute")]
    pub fn check_device_pointer(&self, argument: &'static str, buffer: &RawBuffer) -> Result<()> {
        const NAME: &str = "cuPointerGetAttribute";
        let backend = self.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(());
        }
        let _device = self.activate()?;
        let call = backend.driver_function(backend.driver().pointer_attribute, NAME)?;
        let mut kind: u32 = 0;
        let attribute = driver::POINTER_MEMORY_TYPE;
        // SAFETY: the attribute is 32 bits wide; any pointer may be asked about.
        let known = unsafe { call((&raw mut kind).cast(), attribute, buffer.ptr as u64) };
        let other = match (known == driver::CuResult::SUCCESS, kind) {
            (true, driver::MEMORY_DEVICE | driver::MEMORY_UNIFIED) => None,
            (true, driver::MEMORY_HOST) => Some("pinned host memory"),
            (true, _) => Some("memory of another kind"),
            (false, _) => {
                Some("a pointer that the driver does not know, such as ordinary host memory")
            }
        };
        let facts = memory::PointerFacts { argument, other };
        rules::check(memory::DEVICE, |broken| broken(&facts))
    }
}
