//! The end of a runtime.

use std::sync::PoisonError;

use nccl_ext_core::{Backend, Comm, Refused, Result};

use super::Runtime;
use crate::library::Library;
use crate::recording::refuse_in_group;

impl Runtime {
    /// Ends the runtime. Every rank calls it at the same point, before it destroys a communicator.
    /// Waits for the work of its calls: the library wants everything complete.
    ///
    /// # Errors
    /// [`Error::Busy`], with the runtime, inside a group. [`Error::Poisoned`] or
    /// [`Error::Diverged`] when an error left this rank out of step: the runtime is then given up as
    /// by a drop. Otherwise what the driver and the library report.
    ///
    /// [`Error::Busy`]: crate::Error::Busy
    /// [`Error::Poisoned`]: crate::Error::Poisoned
    /// [`Error::Diverged`]: crate::Error::Diverged
    #[doc(alias = "ncclM2nFinalize")]
    pub fn finalize(mut self) -> Result<(), Refused<Self>> {
        if let Err(error) = refuse_in_group("finalising a runtime") {
            return Err(Refused::kept(error, self));
        }
        self.end().map_err(Refused::lost)
    }

    fn end(&mut self) -> Result<()> {
        self.check_not_poisoned()?;
        let states = self.comms.get_mut().unwrap_or_else(PoisonError::into_inner);
        for state in states.iter() {
            state.check_in_step()?;
            state.last_use.wait()?;
        }
        self.finalize_native()
    }

    fn finalize_native(&mut self) -> Result<()> {
        self.finalized = true;
        let comms = self.take_comm_states().iter().map(|state| state.comm.clone()).collect();
        // SAFETY: a live handle, given up here: no call of this runtime runs meanwhile, and the
        // work of earlier ones is complete. The communicators live, and those of runtimes that
        // were finalised before are held by the caches' lifetime.
        let result = unsafe {
            let api = self.library.api;
            self.library.call("ncclM2nFinalize", api.ncclM2nFinalize, (self.handle,))
        };
        match &result {
            Ok(()) => self.caches.end_handle(comms),
            Err(_) => self.caches.give_up_handle(comms),
        }
        result
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.finalized {
            return;
        }
        if !self.caches.has_caches() {
            // Nothing is left of earlier calls, so this is local.
            if let Err(error) = self.finalize_native() {
                tracing::error!(%error, "an M2N handle was leaked");
            }
            return;
        }
        let comms: Vec<Comm> =
            self.take_comm_states().iter().map(|state| state.comm.clone()).collect();
        // Finalising talks to the peers: here one may be gone, and a hang is worse than a leak.
        comms.iter().for_each(Comm::mark_for_abort);
        tracing::warn!(
            communicators = comms.len(),
            "M2N runtime dropped without finalize(): its native handle is leaked and its \
             communicators will be aborted"
        );
        self.caches.give_up_handle(comms);
    }
}

/// Finalises the library's default handle, which calls without a handle share: code in other
/// languages may have made it. This crate never does. Repeating it is fine.
///
/// # Errors
/// [`Error::Unsupported`] when the backend has no libnccl_m2n, [`Error::Busy`] inside a group, and
/// what the library reports.
///
/// [`Error::Unsupported`]: crate::Error::Unsupported
/// [`Error::Busy`]: crate::Error::Busy
///
/// # Safety
/// No other code in the process uses the default handle meanwhile, and the work of its calls is
/// complete. When no [`Runtime`] lives, every rank does this at the same point, and the
/// communicators of those calls are still there.
#[doc(alias = "ncclM2nFinalize")]
#[doc(alias = "finalize")]
pub unsafe fn finalize_default(backend: Backend) -> Result<()> {
    let library = Library::of(backend)?;
    refuse_in_group("finalising the default handle")?;
    let finalize = library.api.ncclM2nFinalize;
    // SAFETY: NULL names the default handle; the rest is this function's contract.
    unsafe { library.call("ncclM2nFinalize", finalize, (core::ptr::null_mut(),)) }
}
