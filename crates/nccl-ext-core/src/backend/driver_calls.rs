//! What calls of the driver come to.

use core::ffi::c_char;

use super::Backend;
use crate::driver::CuResult;
use crate::error::{Error, Result};

impl Backend {
    /// A function of the driver; one that is missing as an error.
    pub(crate) fn driver_function<F>(self, entry: Option<F>, symbol: &'static str) -> Result<F> {
        entry.ok_or_else(|| Error::Unsupported {
            feature: symbol,
            library: format!("the driver of backend {}", self.name()),
            found: "no such function".into(),
            needs: "a driver that exports it".into(),
        })
    }

    /// Turns a driver code into an error: the one behind it where the backend has hooks that know
    /// it, else one that names the call.
    pub(crate) fn check_driver(self, call: &'static str, result: CuResult) -> Result<()> {
        if result == CuResult::SUCCESS {
            return Ok(());
        }
        if let Some(error) = self.hooks().and_then(|hooks| (hooks.take_error)()) {
            return Err(error);
        }
        let mut detail = String::new();
        if let Some(error_name) = self.driver().error_name {
            let mut name: *const c_char = core::ptr::null();
            // SAFETY: `name` outlives the call, which stores a pointer to a static string or NULL.
            let named = unsafe { error_name(result, &mut name) };
            if named == CuResult::SUCCESS {
                // SAFETY: the driver's names are static NUL-terminated strings.
                detail = unsafe { super::text(name) };
            }
        }
        Err(Error::Driver { call, code: result.0, detail })
    }
}
