//! Calls of the library, and the words it has for what went wrong.

use nccl_ext_core::guard::{self, Foreign};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Backend, Error, Result};
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
        let code = unsafe { guard::call(name, function, arguments) }?;
        if code.is_success() {
            return Ok(());
        }
        let known = self.backend.hooks().and_then(|hooks| (hooks.take_error)());
        Err(match known {
            Some(error) => error,
            None => Error::Native { call: name, code, detail: self.last_error()? },
        })
    }

    /// The library's words for this thread's last call; empty when it succeeded (M2N 1.7).
    pub(crate) fn last_error(self) -> Result<String> {
        // SAFETY: no arguments.
        let text = unsafe { guard::call("ncclM2nGetLastError", self.api.ncclM2nGetLastError, ())? };
        if text.is_null() {
            return Ok(String::new());
        }
        // SAFETY: the text is NUL-terminated, and this thread's until its next call.
        let text = unsafe { core::ffi::CStr::from_ptr(text) };
        Ok(text.to_string_lossy().into_owned())
    }
}
