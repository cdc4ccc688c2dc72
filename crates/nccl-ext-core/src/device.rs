//! Devices, and the current one around calls that depend on it.

use std::fmt;

use crate::backend::{Backend, MemorySpace};
use crate::driver::{self, ATTRIBUTE_MULTIPROCESSOR_COUNT, CuContext, DriverApi};
use crate::error::{Error, Result};

/// One device of a backend: where memory, streams, events and communicators are.
///
/// What is given to a call must be on the call's device; everything that has a device can tell it.
/// A communicator's is [`Comm::device`](crate::Comm::device), and `&comm` stands for it wherever a
/// device is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[doc(alias = "CUdevice")]
pub struct Device {
    backend: Backend,
    ordinal: i32,
}

impl Device {
    /// The device of that ordinal, as the driver counts them from 0. Whether it exists shows when
    /// it is used.
    #[must_use]
    pub const fn new(backend: Backend, ordinal: i32) -> Self {
        Self { backend, ordinal }
    }

    /// The backend whose device it is.
    #[must_use]
    pub const fn backend(self) -> Backend {
        self.backend
    }

    /// Its number, from 0.
    #[must_use]
    pub const fn ordinal(self) -> i32 {
        self.ordinal
    }

    /// Makes it current on this thread, until the scope drops. Every call of these crates does it
    /// for itself: threads of a pool have no device current, and kernels go to the current one.
    ///
    /// # Errors
    /// [`Error::Driver`] for a device that does not exist, or when its
    /// context cannot be made current; [`Error::Unsupported`] without
    /// the driver functions.
    #[doc(alias = "cuCtxSetCurrent")]
    pub fn activate(self) -> Result<DeviceScope> {
        let backend = self.backend;
        if backend.memory() == MemorySpace::Host {
            return Ok(DeviceScope { backend, previous: None });
        }
        let context = primary_context(self)?;
        let table = backend.driver();
        let get = backend.driver_function(table.context_get, "cuCtxGetCurrent")?;
        let mut previous = core::ptr::null_mut();
        // SAFETY: `previous` outlives the call.
        backend.check_driver("cuCtxGetCurrent", unsafe { get(&mut previous) })?;
        if previous == context {
            return Ok(DeviceScope { backend, previous: None });
        }
        let set = backend.driver_function(table.context_set, "cuCtxSetCurrent")?;
        // SAFETY: a primary context that was retained and is never released stays valid.
        backend.check_driver("cuCtxSetCurrent", unsafe { set(context) })?;
        Ok(DeviceScope { backend, previous: Some(previous) })
    }

    /// Refuses to free memory, or to end a communicator, while work of an aborted communicator waits
    /// on the device: the driver would wait for it, whatever the memory was used for (EP 6.4).
    pub(crate) fn refuse_to_free(self) -> Result<()> {
        match self.backend.abandoned().cause_of_work(self.ordinal) {
            Some(cause) => Err(Error::Poisoned { cause }),
            None => Ok(()),
        }
    }

    /// Number of streaming multiprocessors.
    ///
    /// # Errors
    /// [`Error::Driver`] for a device that does not exist;
    /// [`Error::Unsupported`] without the driver function.
    #[doc(alias = "cuDeviceGetAttribute")]
    pub fn sm_count(self) -> Result<u32> {
        const NAME: &str = "cuDeviceGetAttribute";
        let Self { backend, ordinal } = self;
        let table = initialised_driver(backend)?;
        let call = backend.driver_function(table.device_attribute, NAME)?;
        let mut count = 0;
        // SAFETY: `count` outlives the call; a wrong ordinal is an error code.
        let code = unsafe { call(&mut count, ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal) };
        backend.check_driver(NAME, code)?;
        Ok(count.max(0).unsigned_abs())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} of backend {}", self.ordinal, self.backend.name())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

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

impl DeviceScope {
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
fn initialised_driver(backend: Backend) -> Result<&'static DriverApi> {
    let table = backend.driver();
    if let Some(init) = table.init {
        // SAFETY: 0 is the only flag there is; calling it again does nothing.
        backend.check_driver("cuInit", unsafe { init(0) })?;
    }
    Ok(table)
}

/// A device's primary context. It is never released: the runtime keeps it for the process anyway,
/// and releasing it under a running kernel would be an error.
fn primary_context(Device { backend, ordinal }: Device) -> Result<CuContext> {
    const NAME: &str = "cuDevicePrimaryCtxRetain";
    if let Some(context) = backend.contexts().get(ordinal) {
        return Ok(context);
    }
    let table = initialised_driver(backend)?;
    let retain = backend.driver_function(table.primary_context_retain, NAME)?;
    let mut context = core::ptr::null_mut();
    // SAFETY: `context` outlives the call; a wrong ordinal is an error code.
    backend.check_driver(NAME, unsafe { retain(&mut context, ordinal) })?;
    backend.contexts().remember(ordinal, context);
    Ok(context)
}

/// Number of devices that this process sees.
///
/// # Errors
/// What the driver reports.
#[doc(alias = "cuDeviceGetCount")]
pub fn count(backend: Backend) -> Result<usize> {
    const NAME: &str = "cuDeviceGetCount";
    let call = backend.driver_function(initialised_driver(backend)?.device_count, NAME)?;
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    backend.check_driver(NAME, unsafe { call(&mut count) })?;
    Ok(count.max(0).unsigned_abs() as usize)
}
