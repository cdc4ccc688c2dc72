//! CUDA streams.

use std::marker::PhantomData;

use crate::backend::MemorySpace;
use crate::comm::Comm;
use crate::driver;
use crate::error::Result;
use crate::raw::cudaStream_t;

/// A borrowed CUDA stream: work enqueued on it runs in order.
///
/// Backends whose memory is the host's run every call before it returns and ignore the stream.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "cudaStream_t")]
pub struct Stream<'a> {
    raw: cudaStream_t,
    owner: PhantomData<&'a ()>,
}

// SAFETY: CUDA streams may be used from any thread.
unsafe impl Send for Stream<'_> {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Stream<'_> {}

impl Stream<'static> {
    /// The legacy default stream of the communicator's device.
    pub const DEFAULT: Self = Self { raw: core::ptr::null_mut(), owner: PhantomData };
}

impl Stream<'_> {
    /// Wraps a stream that something else owns.
    ///
    /// # Safety
    /// `raw` is NULL or a stream that lives, with its context, for the chosen lifetime and until
    /// the work enqueued through the result is done.
    #[must_use]
    pub const unsafe fn from_raw(raw: cudaStream_t) -> Self {
        Self { raw, owner: PhantomData }
    }

    /// The C handle.
    #[must_use]
    pub const fn as_raw(self) -> cudaStream_t {
        self.raw
    }

    /// Waits until everything enqueued so far has run on the communicator's device.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) when the work failed,
    /// [`Error::Unsupported`](crate::Error::Unsupported) without the driver function.
    #[doc(alias = "cuStreamSynchronize")]
    pub fn synchronize(self, comm: &Comm) -> Result<()> {
        let backend = comm.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(());
        }
        const NAME: &str = "cuStreamSynchronize";
        let _device = comm.activate()?;
        let call = driver::required(backend, backend.driver().stream_synchronize, NAME)?;
        // SAFETY: the stream lives by the contract of `from_raw`.
        driver::check(backend, NAME, unsafe { call(self.raw) })
    }

    /// Whether the stream is being captured into a graph. Always false on host backends.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    #[doc(alias = "cuStreamIsCapturing")]
    pub fn is_capturing(self, comm: &Comm) -> Result<bool> {
        let backend = comm.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(false);
        }
        const NAME: &str = "cuStreamIsCapturing";
        let _device = comm.activate()?;
        let call = driver::required(backend, backend.driver().stream_is_capturing, NAME)?;
        let mut status = 0;
        // SAFETY: the stream lives by the contract of `from_raw`, `status` outlives the call.
        driver::check(backend, NAME, unsafe { call(self.raw, &mut status) })?;
        Ok(status != 0)
    }
}
