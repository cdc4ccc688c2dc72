//! CUDA streams.

use std::fmt;
use std::marker::PhantomData;

use crate::backend::MemorySpace;
use crate::device::Device;
use crate::driver;
use crate::error::Result;
use crate::raw::cudaStream_t;
use crate::rules;
use crate::rules::stream::{PLACE, StreamFacts};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: core::ffi::c_uint = 1;

/// A borrowed CUDA stream: work enqueued on it runs in order.
///
/// Backends whose memory is the host's run every call before it returns and ignore the stream.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "cudaStream_t")]
pub struct Stream<'a> {
    raw: cudaStream_t,
    /// Where it is, for streams of ours.
    device: Option<Device>,
    owner: PhantomData<&'a ()>,
}

// SAFETY: CUDA streams may be used from any thread.
unsafe impl Send for Stream<'_> {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Stream<'_> {}

impl Stream<'static> {
    /// The legacy default stream of the device that a call is made on.
    pub const DEFAULT: Self = Self { raw: core::ptr::null_mut(), device: None, owner: PhantomData };
}

impl Stream<'_> {
    /// Wraps a stream that something else owns.
    ///
    /// # Safety
    /// `raw` is NULL or a stream that lives, with its context, for the chosen lifetime and until
    /// the work enqueued through the result is done.
    #[must_use]
    pub const unsafe fn from_raw(raw: cudaStream_t) -> Self {
        Self { raw, device: None, owner: PhantomData }
    }

    /// Its device; `None` for the default stream and for streams that something else owns.
    #[must_use]
    pub const fn device(self) -> Option<Device> {
        self.device
    }

    /// Refuses this stream for work of another device than its own.
    pub(crate) fn check_on(self, device: Device) -> Result<()> {
        let facts = StreamFacts { stream: self.device, device };
        rules::check(PLACE, |broken| broken(&facts))
    }

    /// The C handle.
    #[must_use]
    pub const fn as_raw(self) -> cudaStream_t {
        self.raw
    }

    /// Waits until everything enqueued so far has run. The device, or the communicator on it, says
    /// where the default stream is.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a stream of another device,
    /// [`Error::Driver`](crate::Error::Driver) when the work failed,
    /// [`Error::Unsupported`](crate::Error::Unsupported) without the driver function.
    #[doc(alias = "cuStreamSynchronize")]
    pub fn synchronize(self, device: impl Into<Device>) -> Result<()> {
        let device = device.into();
        self.check_on(device)?;
        let backend = device.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(());
        }
        const NAME: &str = "cuStreamSynchronize";
        let _current = device.activate()?;
        let call = backend.driver_function(backend.driver().stream_synchronize, NAME)?;
        // SAFETY: the stream lives by the contract of `from_raw`.
        backend.check_driver(NAME, unsafe { call(self.raw) })
    }

    /// Whether the stream is being captured into a graph. Always false on host backends.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    #[doc(alias = "cuStreamIsCapturing")]
    pub fn is_capturing(self, device: impl Into<Device>) -> Result<bool> {
        let device = device.into();
        self.check_on(device)?;
        let backend = device.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(false);
        }
        const NAME: &str = "cuStreamIsCapturing";
        let _current = device.activate()?;
        let call = backend.driver_function(backend.driver().stream_is_capturing, NAME)?;
        let mut status = 0;
        // SAFETY: the stream lives by the contract of `from_raw`, `status` outlives the call.
        backend.check_driver(NAME, unsafe { call(self.raw, &mut status) })?;
        Ok(status != 0)
    }
}

/// A stream of one's own on a device. It does not wait for the legacy default
/// stream, nor the other way round.
///
/// Its drop does not wait for the work that is enqueued on it.
#[doc(alias = "cuStreamCreate")]
pub struct OwnedStream {
    /// NULL on host backends, which ignore streams.
    raw: cudaStream_t,
    device: Device,
}

// SAFETY: CUDA streams may be used from any thread.
unsafe impl Send for OwnedStream {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for OwnedStream {}

impl OwnedStream {
    /// Makes a stream on a device, or on a communicator's: `&comm`.
    ///
    /// # Errors
    /// What the driver reports, [`Error::Unsupported`](crate::Error::Unsupported) without the
    /// driver function.
    pub fn new(device: impl Into<Device>) -> Result<Self> {
        const NAME: &str = "cuStreamCreate";
        let device = device.into();
        let backend = device.backend();
        let mut raw = core::ptr::null_mut();
        if backend.memory() == MemorySpace::Device {
            let _current = device.activate()?;
            let call = backend.driver_function(backend.driver().stream_create, NAME)?;
            // SAFETY: `raw` outlives the call; the device's context is current.
            backend.check_driver(NAME, unsafe { call(&mut raw, NON_BLOCKING) })?;
        }
        Ok(Self { raw, device })
    }

    /// The stream, to be given to calls.
    #[must_use]
    pub fn stream(&self) -> Stream<'_> {
        Stream { raw: self.raw, device: Some(self.device), owner: PhantomData }
    }
}

impl Drop for OwnedStream {
    #[doc(alias = "cuStreamDestroy_v2")]
    fn drop(&mut self) {
        let Some(call) = self.device.backend().driver().stream_destroy else { return };
        if self.raw.is_null() {
            return;
        }
        let current = self.device.activate();
        // SAFETY: the stream was made here and is given up once; the driver frees it when its work
        // is done.
        let code = unsafe { call(self.raw) };
        if current.is_err() || code != driver::CuResult::SUCCESS {
            tracing::error!(code = code.0, "a CUDA stream was leaked");
        }
    }
}

impl fmt::Debug for OwnedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedStream({:p}, {})", self.raw, self.device)
    }
}
