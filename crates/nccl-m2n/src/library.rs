//! Calls of the library, and the words it has for what went wrong.

use nccl_ext_core::backend;
use nccl_ext_core::guard::{self, Foreign};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Backend, Result};
use nccl_m2n_sys::M2nApi;

/// The library behind a backend.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    pub(crate) backend: Backend,
    pub(crate) api: &'static M2nApi,
}

impl Library {
    pub(crate) fn of(backend: Backend) -> Result<Self> {
        Ok(Self { backend, api: backend.extension::<M2nApi>()? })
    }

    /// Makes a native call through the guard and turns what comes back into the best error, on the
    /// call's thread.
    ///
    /// # Safety
    /// As for the call, except that C++ exceptions may leave it.
    pub(crate) unsafe fn call<F>(
        self,
        name: &'static str,
        function: F,
        arguments: F::Arguments,
    ) -> Result<()>
    where
        F: Foreign<Output = ncclResult_t>,
    {
        // SAFETY: this function's contract.
        unsafe { self.backend.call(name, function, arguments, || self.last_error()) }
    }

    /// The library's words for this thread's last call; empty when it succeeded (M2N 1.7).
    pub(crate) fn last_error(self) -> Result<String> {
        // SAFETY: no arguments; the text is this thread's until its next call.
        unsafe {
            let text = guard::call("ncclM2nGetLastError", self.api.ncclM2nGetLastError, ())?;
            Ok(backend::text(text))
        }
    }
}
