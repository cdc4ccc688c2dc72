//! The current device, around calls that depend on it.

use crate::backend::{Backend, MemorySpace};
use crate::driver::{self, ATTRIBUTE_MULTIPROCESSOR_COUNT, CuContext};
use crate::error::Result;

/// Makes a device current on this thread, and the caller's context again when dropped.
///
/// Creating an EP group with any other device current kills the process (EP 14), and memory must
/// be allocated on the device that uses it. Does nothing on host backends.
pub struct DeviceScope {
    backend: Backend,
    previous: Option<CuContext>,
}

impl DeviceScope {
    /// Makes `device` current.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn enter(backend: Backend, device: i32) -> Result<Self> {
        if backend.memory() == MemorySpace::Host {
            return Ok(Self { backend, previous: None });
        }
        let table = backend.driver();
        let get = driver::required(backend, table.context_get, "cuCtxGetCurrent")?;
        let set = driver::required(backend, table.context_set, "cuCtxSetCurrent")?;
        let mut previous = core::ptr::null_mut();
        // SAFETY: `previous` outlives the call.
        driver::check(backend, "cuCtxGetCurrent", unsafe { get(&mut previous) })?;
        let context = primary_context(backend, device)?;
        // SAFETY: a primary context that was retained and is never released stays valid.
        driver::check(backend, "cuCtxSetCurrent", unsafe { set(context) })?;
        Ok(Self { backend, previous: Some(previous) })
    }

    /// Waits for all work of the device.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn synchronize(&self) -> Result<()> {
        if self.previous.is_none() {
            return Ok(());
        }
        const NAME: &str = "cuCtxSynchronize";
        let call = driver::required(self.backend, self.backend.driver().context_synchronize, NAME)?;
        // SAFETY: no arguments; the scope's context is current.
        driver::check(self.backend, NAME, unsafe { call() })
    }
}

impl Drop for DeviceScope {
    fn drop(&mut self) {
        if let (Some(previous), Some(set)) = (self.previous, self.backend.driver().context_set) {
            // SAFETY: the caller's context, or NULL for none.
            let result = unsafe { set(previous) };
            if result != driver::CuResult::SUCCESS {
                tracing::error!(code = result.0, "the caller's CUDA context was not restored");
            }
        }
    }
}

/// Retains the device's primary context once more. It is never released: the runtime keeps it for
/// the process anyway, and releasing it under a running kernel would be an error.
fn primary_context(backend: Backend, device: i32) -> Result<CuContext> {
    const NAME: &str = "cuDevicePrimaryCtxRetain";
    let retain = driver::required(backend, backend.driver().primary_context_retain, NAME)?;
    let mut context = core::ptr::null_mut();
    // SAFETY: `context` outlives the call; a wrong ordinal is an error code.
    driver::check(backend, NAME, unsafe { retain(&mut context, device) })?;
    Ok(context)
}

/// Number of streaming multiprocessors of a device.
///
/// # Errors
/// What the driver reports.
pub fn sm_count(backend: Backend, device: i32) -> Result<u32> {
    const NAME: &str = "cuDeviceGetAttribute";
    let call = driver::required(backend, backend.driver().device_attribute, NAME)?;
    let mut count = 0;
    // SAFETY: `count` outlives the call; a wrong ordinal is an error code.
    let code = unsafe { call(&mut count, ATTRIBUTE_MULTIPROCESSOR_COUNT, device) };
    driver::check(backend, NAME, code)?;
    Ok(count.max(0).unsigned_abs())
}
