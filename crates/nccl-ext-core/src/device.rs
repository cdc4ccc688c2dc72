//! The current device, around calls that depend on it.

use crate::backend::{Backend, MemorySpace};
use crate::driver::{self, ATTRIBUTE_MULTIPROCESSOR_COUNT, CuContext, DriverApi};
use crate::error::Result;

/// Makes a device current on this thread, and the caller's context again when dropped.
///
/// Memory must be allocated on the device that uses it, kernels are launched on the current one,
/// and creating an EP group with any other device current kills the process (EP 14). Does nothing
/// on host backends, nor when the device is current already.
#[must_use = "the device is current only as long as the scope lives"]
pub struct DeviceScope {
    backend: Backend,
    /// What to make current again; `None` when nothing was changed.
    previous: Option<CuContext>,
}

/// A device's primary context, kept for the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context(CuContext);

// SAFETY: a CUDA context may be made current on any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the device's primary context. It is never released: the runtime keeps it for the
    /// process anyway, and releasing it under a running kernel would be an error.
    pub(crate) fn primary(backend: Backend, device: i32) -> Result<Self> {
        const NAME: &str = "cuDevicePrimaryCtxRetain";
        let table = initialised(backend)?;
        let retain = backend.driver_function(table.primary_context_retain, NAME)?;
        let mut context = core::ptr::null_mut();
        // SAFETY: `context` outlives the call; a wrong ordinal is an error code.
        backend.check_driver(NAME, unsafe { retain(&mut context, device) })?;
        Ok(Self(context))
    }
}

impl DeviceScope {
    /// Makes the device of that ordinal current.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn enter(backend: Backend, device: i32) -> Result<Self> {
        if backend.memory() == MemorySpace::Host {
            return Ok(Self { backend, previous: None });
        }
        Self::make_current(backend, Context::primary(backend, device)?)
    }

    pub(crate) fn make_current(backend: Backend, Context(context): Context) -> Result<Self> {
        let table = backend.driver();
        let get = backend.driver_function(table.context_get, "cuCtxGetCurrent")?;
        let mut previous = core::ptr::null_mut();
        // SAFETY: `previous` outlives the call.
        backend.check_driver("cuCtxGetCurrent", unsafe { get(&mut previous) })?;
        if previous == context {
            return Ok(Self { backend, previous: None });
        }
        let set = backend.driver_function(table.context_set, "cuCtxSetCurrent")?;
        // SAFETY: a primary context that was retained and is never released stays valid.
        backend.check_driver("cuCtxSetCurrent", unsafe { set(context) })?;
        Ok(Self { backend, previous: Some(previous) })
    }

    /// Nothing to make current.
    pub(crate) fn host(backend: Backend) -> Self {
        Self { backend, previous: None }
    }

    /// Waits for all work of the device.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn synchronize(&self) -> Result<()> {
        if self.backend.memory() == MemorySpace::Host {
            return Ok(());
        }
        const NAME: &str = "cuCtxSynchronize";
        let call = self.backend.driver_function(self.backend.driver().context_synchronize, NAME)?;
        // SAFETY: no arguments; the scope's context is current.
        self.backend.check_driver(NAME, unsafe { call() })
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

/// The driver's table, which answers nothing before this.
fn initialised(backend: Backend) -> Result<&'static DriverApi> {
    let table = backend.driver();
    if let Some(init) = table.init {
        // SAFETY: 0 is the only flag there is; calling it again does nothing.
        backend.check_driver("cuInit", unsafe { init(0) })?;
    }
    Ok(table)
}

/// Number of devices that this process sees.
///
/// # Errors
/// What the driver reports.
#[doc(alias = "cuDeviceGetCount")]
pub fn count(backend: Backend) -> Result<usize> {
    const NAME: &str = "cuDeviceGetCount";
    let call = backend.driver_function(initialised(backend)?.device_count, NAME)?;
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    backend.check_driver(NAME, unsafe { call(&mut count) })?;
    Ok(count.max(0).unsigned_abs() as usize)
}

/// Number of streaming multiprocessors of a device.
///
/// # Errors
/// What the driver reports.
#[doc(alias = "cuDeviceGetAttribute")]
pub fn sm_count(backend: Backend, device: i32) -> Result<u32> {
    const NAME: &str = "cuDeviceGetAttribute";
    let call = backend.driver_function(initialised(backend)?.device_attribute, NAME)?;
    let mut count = 0;
    // SAFETY: `count` outlives the call; a wrong ordinal is an error code.
    let code = unsafe { call(&mut count, ATTRIBUTE_MULTIPROCESSOR_COUNT, device) };
    backend.check_driver(NAME, code)?;
    Ok(count.max(0).unsigned_abs())
}
