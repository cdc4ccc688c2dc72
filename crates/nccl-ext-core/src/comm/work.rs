//! Work that calls of a communicator enqueue, and waiting for it.

use std::time::Duration;

use super::Comm;
use crate::deadline;
use crate::error::Result;
use crate::raw::ncclResult_t;
use crate::stream::Stream;
use crate::usage::Use;

impl Comm {
    /// Enqueues a native call on `stream`: after the earlier uses of all that it uses, and known to
    /// [`abort`](Self::abort). The caller holds [`lock`](Self::lock), and the device is current.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) once the communicator was aborted; the call's
    /// error; what the driver reports.
    #[inline]
    pub fn enqueue<T>(
        &self,
        stream: Stream<'_>,
        uses: &[Use<'_>],
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.refuse_if_aborted()?;
        Use::around(stream, &[self.as_use()], || {
            self.refuse_if_aborted()?; // an abort since then may not have seen the stream
            Use::around(stream, uses, call)
        })
    }

    /// What [`enqueue`](Self::enqueue) tells of the stream beside the uses that it is given: for calls
    /// that enqueue on several streams.
    #[inline]
    #[must_use]
    pub fn as_use(&self) -> Use<'_> {
        Use::read(Some(&*self.0.last_use))
    }

    /// The use of the communicator by a collective.
    pub(crate) fn collective_use(&self) -> Use<'_> {
        Use::write(Some(&self.0.last_collective))
    }

    /// Waits for everything enqueued on `stream` so far, but no longer than `limit`, and looks out
    /// for an asynchronous error of the communicator meanwhile. What still runs then goes on running:
    /// nothing can stop a kernel.
    ///
    /// # Errors
    /// The asynchronous error, if there is one; [`Error::Timeout`](crate::Error::Timeout) past the
    /// limit; [`Error::Poisoned`](crate::Error::Poisoned) when the communicator was aborted and the
    /// work is not done; otherwise as [`Stream::synchronize`].
    #[doc(alias = "ncclCommGetAsyncError")]
    pub fn wait_for(&self, stream: Stream<'_>, limit: Duration) -> Result<()> {
        self.wait_until(limit, || stream.is_done(self.device()))
    }

    /// As [`wait_for`](Self::wait_for), until `is_done` says so, which is asked again and again.
    ///
    /// # Errors
    /// What `is_done` gives; otherwise as [`wait_for`](Self::wait_for).
    pub fn wait_until(
        &self,
        limit: Duration,
        mut is_done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        deadline::poll("waiting for a communicator's work", Some(limit), || {
            let done = is_done()?;
            if !done {
                self.refuse_if_aborted()?;
            }
            self.check_async()?;
            Ok(done)
        })
    }

    /// Refuses with the asynchronous error of the communicator's work so far, if there is one.
    ///
    /// # Errors
    /// That error, in full where the backend knows it.
    #[doc(alias = "ncclCommGetAsyncError")]
    pub fn check_async(&self) -> Result<()> {
        const NAME: &str = "ncclCommGetAsyncError";
        if self.refuse_if_aborted().is_err() || self.backend().memory().is_synchronous() {
            return Ok(()); // nothing native is called after an abort
        }
        let mut state = ncclResult_t::ncclSuccess;
        let nccl = self.backend().nccl();
        // SAFETY: the communicator lives as long as this handle, `state` outlives the call, and NCCL
        // allows this call while another one is inside.
        let code = unsafe { (nccl.ncclCommGetAsyncError)(self.as_raw(), &mut state) };
        // SAFETY: the communicator lives.
        unsafe { self.backend().check(NAME, code, self.as_raw())? };
        if state == ncclResult_t::ncclInProgress {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.backend().check(NAME, state, self.as_raw()) }
    }
}
