//! Communicators.

mod abort;
mod bootstrap;
mod end;
mod memory;
mod work;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::bootstrap::UniqueId;
use self::end::End;
use crate::backend::{self, Backend};
use crate::callback::refuse_inside_callback;
use crate::device::{Device, DeviceScope};
use crate::error::{Error, Refused, Result};
use crate::guard::Foreign;
use crate::order::LastUse;
use crate::raw::{ncclComm_t, ncclResult_t};

struct Inner {
    raw: ncclComm_t,
    rank: usize,
    size: usize,
    device: Device,
    /// Held over each native call: NCCL allows one thread at a time on a communicator, and the
    /// extensions run collectives of their own on it.
    calls: Mutex<()>,
    /// How it will end.
    end: End,
    /// Streams that it was used on, for aborts.
    last_use: Arc<LastUse>,
    /// Its collectives run one after the other on every rank, whatever the streams.
    last_collective: LastUse,
}

// SAFETY: NCCL communicators are not tied to a thread; `calls` keeps two threads from using one at
// the same time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A rank's membership in a communicator.
///
/// Clones share it. The last clone's drop aborts it, which talks to no peer: a collective in a drop
/// would hang when one is gone. [`destroy`](Self::destroy) ends it in good order.
///
/// On GPUs that waits for the device. While a kernel of libnccl_ep waits for a peer that does not come
/// it does not return, and neither does the drop (EP 6.4): [`abort`](Self::abort) the communicator
/// first.
#[derive(Clone)]
#[doc(alias = "ncclComm_t")]
pub struct Comm(Arc<Inner>);

impl Comm {
    /// The backend it was made on.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.0.device.backend()
    }

    /// This rank.
    #[must_use]
    #[doc(alias = "ncclCommUserRank")]
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// Number of ranks.
    #[must_use]
    #[doc(alias = "ncclCommCount")]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Its device.
    #[must_use]
    #[doc(alias = "ncclCommCuDevice")]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Makes the communicator's device current on this thread, until the scope drops: what every call
    /// of these crates begins with.
    ///
    /// # Errors
    /// [`Error::Busy`] inside a [callback](crate::inside_callback) of a native call; otherwise as
    /// [`Device::activate`].
    pub fn activate(&self) -> Result<DeviceScope> {
        refuse_inside_callback()?;
        self.0.device.activate()
    }

    /// The C handle, for calls that these crates do not wrap.
    #[must_use]
    pub fn as_raw(&self) -> ncclComm_t {
        self.0.raw
    }

    /// Keeps every other thread out of native calls on this communicator until the guard drops:
    /// for native calls that these crates do not wrap. All calls of these crates take it for
    /// themselves, so none may be made while holding it.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        // A panic while it was held cannot have left native state half-changed by Rust code.
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a native call of this communicator's backend through the [`guard`](crate::guard) and
    /// turns what comes back into the best error, on the call's thread.
    ///
    /// The caller holds [`lock`](Self::lock) and has the device current.
    ///
    /// # Errors
    /// [`Error::Poisoned`] without the call once the communicator was [aborted](Self::abort);
    /// [`Error::Exception`] for a C++ exception, else what the backend reports.
    ///
    /// # Safety
    /// As for the call, except that C++ exceptions may leave it.
    pub unsafe fn call<F>(
        &self,
        name: &'static str,
        function: F,
        arguments: F::Arguments,
    ) -> Result<()>
    where
        F: Foreign<Output = ncclResult_t>,
    {
        self.refuse_if_aborted()?;
        let backend = self.backend();
        // SAFETY: this function's contract; the communicator lives as long as this handle, and
        // NCCL's text stays until its next error on this thread.
        unsafe {
            backend.call(name, function, arguments, || {
                Ok(backend::text((backend.nccl().ncclGetLastError)(self.0.raw)))
            })
        }
    }

    /// Ends the communicator in good order. Every rank calls it, after its last collective.
    ///
    /// # Errors
    /// [`Error::Busy`], with the communicator, while clones, groups or handles live;
    /// what the backend reports.
    #[doc(alias = "ncclCommFinalize")]
    #[doc(alias = "ncclCommDestroy")]
    pub fn destroy(self) -> Result<(), Refused<Self>> {
        let inner = match Arc::try_unwrap(self.0) {
            Ok(inner) => inner,
            Err(shared) => {
                let error = Error::Busy {
                    what: "the communicator",
                    reason: format!(
                        "{} other owner(s) (clones, groups, handles) live; drop or destroy \
                         them first",
                        Arc::strong_count(&shared) - 1
                    ),
                };
                return Err(Refused::kept(error, Self(shared)));
            }
        };
        if inner.end.is_marked() {
            return Ok(()); // the drop aborts it
        }
        inner.device.refuse_to_free().map_err(Refused::lost)?;
        let inner = std::mem::ManuallyDrop::new(inner);
        let backend = inner.device.backend();
        let nccl = backend.nccl();
        // SAFETY: the last owner gives up a live communicator; its drop does not run any more.
        let result = unsafe {
            let code = (nccl.ncclCommFinalize)(inner.raw);
            let finalized = backend.check("ncclCommFinalize", code, inner.raw);
            let code = (nccl.ncclCommDestroy)(inner.raw);
            finalized.and_then(|()| backend.check("ncclCommDestroy", code, core::ptr::null_mut()))
        };
        result.map_err(Refused::lost)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Once marked, kernels may wait for peers that do not come, and NCCL's abort for the kernels.
        let unfinished = self.end.is_marked() && !matches!(self.last_use.is_done(), Ok(true));
        if unfinished || self.device.refuse_to_free().is_err() {
            tracing::warn!(rank = self.rank, "a communicator with unfinished work is left behind");
            return;
        }
        // SAFETY: the last owner gives up a live communicator.
        let code = unsafe { (self.device.backend().nccl().ncclCommAbort)(self.raw) };
        if !code.is_success() {
            tracing::error!(rank = self.rank, code = code.0, "ncclCommAbort failed");
        }
    }
}

impl From<&Comm> for Device {
    fn from(comm: &Comm) -> Self {
        comm.device()
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm(rank {} of {} on {})", self.0.rank, self.0.size, self.0.device)
    }
}
