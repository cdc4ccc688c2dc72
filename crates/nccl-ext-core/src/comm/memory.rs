//! Memory that calls of a communicator are given.

use super::Comm;
use crate::backend::MemorySpace;
use crate::buffer::RawBuffer;
use crate::driver;
use crate::error::Result;
use crate::rules::{self, memory};
use crate::stream::Stream;

impl Comm {
    /// Refuses memory that this communicator's backend cannot use.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory of another space or another backend.
    pub fn check_memory(&self, argument: &'static str, buffer: &RawBuffer) -> Result<()> {
        let facts = memory::MemoryFacts { argument, buffer: *buffer, backend: self.0.backend };
        rules::check(memory::BACKEND, |broken| broken(&facts))
    }

    /// Refuses a pointer that the driver does not know as device memory. Host backends take any.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory of another kind; [`Error::Unsupported`] without the driver
    /// function.
    #[doc(alias = "cuPointerGetAttribute")]
    pub fn check_device_pointer(&self, argument: &'static str, buffer: &RawBuffer) -> Result<()> {
        const NAME: &str = "cuPointerGetAttribute";
        let backend = self.0.backend;
        if backend.memory() == MemorySpace::Host {
            return Ok(());
        }
        let _device = self.activate()?;
        let call = driver::required(backend, backend.driver().pointer_attribute, NAME)?;
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

    /// Copies device memory to the host, after the stream's earlier work, and waits for it.
    ///
    /// # Errors
    /// What the driver reports.
    ///
    /// # Safety
    /// `from` points to at least as many readable bytes of the backend's memory as `to` has.
    pub unsafe fn copy_to_host(
        &self,
        from: *const core::ffi::c_void,
        to: &mut [u8],
        stream: Stream<'_>,
    ) -> Result<()> {
        const NAME: &str = "cuMemcpyDtoHAsync_v2";
        let backend = self.0.backend;
        let _device = self.activate()?;
        let call = driver::required(backend, backend.driver().copy_to_host, NAME)?;
        // SAFETY: this function's contract; `to` is borrowed until the copy is done.
        let code = unsafe { call(to.as_mut_ptr().cast(), from as u64, to.len(), stream.as_raw()) };
        driver::check(backend, NAME, code)?;
        stream.synchronize(self)
    }
}
