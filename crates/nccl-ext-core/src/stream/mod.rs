//! CUDA streams.

mod object;
mod owned;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::object::StreamObject;
pub use self::owned::OwnedStream;
use crate::backend::MemorySpace;
use crate::deadline;
use crate::device::Device;
use crate::driver::CuResult;
use crate::error::Result;
use crate::raw::cudaStream_t;
use crate::rules;
use crate::rules::stream::{PLACE, StreamFacts};

/// A borrowed CUDA stream: work enqueued on it runs in order.
///
/// Backends whose memory is the host's run every call before it returns and ignore the stream.
#[derive(Clone, Copy)]
#[doc(alias = "cudaStream_t")]
pub struct Stream<'a> {
    raw: cudaStream_t,
    /// For streams of ours.
    object: Option<&'a Arc<StreamObject>>,
    owner: PhantomData<&'a ()>,
}

// SAFETY: CUDA streams may be used from any thread.
unsafe impl Send for Stream<'_> {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Stream<'_> {}

impl Stream<'static> {
    /// The legacy default stream of the device that a call is made on.
    pub const DEFAULT: Self = Self { raw: core::ptr::null_mut(), object: None, owner: PhantomData };
}

impl<'a> Stream<'a> {
    /// Wraps a stream that something else owns.
    ///
    /// # Safety
    /// `raw` is NULL or a stream that lives, with its context, for the chosen lifetime and until
    /// the work enqueued through the result is done. While it is being captured into a graph, what
    /// is enqueued is not remembered: whoever launches the graph keeps all that it uses alive, and
    /// orders the launches with all other uses, those of the host included.
    #[must_use]
    pub const unsafe fn from_raw(raw: cudaStream_t) -> Self {
        Self { raw, object: None, owner: PhantomData }
    }

    /// Its device; `None` for the default stream and for streams that something else owns.
    #[must_use]
    pub fn device(self) -> Option<Device> {
        self.object.map(|object| object.device())
    }

    /// Which stream of ours it is. Numbers start at 1 and are never used again, unlike the addresses
    /// behind C handles; 0 stands for every stream that something else owns.
    #[inline]
    #[must_use]
    pub fn number(self) -> u64 {
        self.object.map_or(0, |object| object.number())
    }

    /// What keeps it alive, for streams of ours.
    pub(crate) fn object(self) -> Option<&'a Arc<StreamObject>> {
        self.object
    }

    pub(crate) fn of(object: &'a Arc<StreamObject>) -> Self {
        Self { raw: object.as_raw(), object: Some(object), owner: PhantomData }
    }

    /// Refuses this stream for work of another device than its own.
    pub(crate) fn check_on(self, device: Device) -> Result<()> {
        let facts = StreamFacts { stream: self.device(), device };
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
    /// Whether everything enqueued so far has run. Asks, and does not wait. Always true on host
    /// backends.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    #[doc(alias = "cuStreamQuery")]
    pub fn is_done(self, device: impl Into<Device>) -> Result<bool> {
        const NAME: &str = "cuStreamQuery";
        let device = device.into();
        self.check_on(device)?;
        let backend = device.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(true);
        }
        let _current = device.activate()?;
        let call = backend.driver_function(backend.driver().stream_query, NAME)?;
        // SAFETY: the stream lives by the contract of `from_raw`.
        match unsafe { call(self.raw) } {
            CuResult::NOT_READY => Ok(false),
            code => backend.check_driver(NAME, code).map(|()| true),
        }
    }

    /// As [`synchronize`](Self::synchronize), but no longer than `limit`. What still runs then goes
    /// on running: nothing can stop a kernel.
    ///
    /// # Errors
    /// [`Error::Timeout`](crate::Error::Timeout) past the limit; otherwise as
    /// [`synchronize`](Self::synchronize).
    pub fn wait_for(self, device: impl Into<Device>, limit: Duration) -> Result<()> {
        let device = device.into();
        deadline::poll("waiting for a stream's work", Some(limit), || self.is_done(device))
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.object {
            Some(object) => write!(f, "Stream({}, {})", object.number(), object.device()),
            None => write!(f, "Stream({:p})", self.raw),
        }
    }
}
