//! What a backend remembers of each of its devices, for the process.

use core::ffi::c_void;
use std::sync::OnceLock;

/// Devices of which something is remembered; of others the driver is asked each time.
const REMEMBERED: usize = 64;

/// A primary context, or a function in one.
#[derive(Debug, Clone, Copy)]
struct DriverObject(*mut c_void);

// SAFETY: contexts may be made current on any thread, and functions launched.
unsafe impl Send for DriverObject {}
// SAFETY: as above.
unsafe impl Sync for DriverObject {}

/// An object of the driver for each device, by the device's ordinal.
pub(crate) struct PerDevice([OnceLock<DriverObject>; REMEMBERED]);

impl PerDevice {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; REMEMBERED])
    }

    fn cell(&self, ordinal: i32) -> Option<&OnceLock<DriverObject>> {
        usize::try_from(ordinal).ok().and_then(|at| self.0.get(at))
    }

    /// The object of a device, if it was asked for before.
    pub(crate) fn get(&self, ordinal: i32) -> Option<*mut c_void> {
        self.cell(ordinal)?.get().map(|DriverObject(object)| *object)
    }

    /// Remembers the object of a device; the earlier one, if another thread was first.
    pub(crate) fn remember(&self, ordinal: i32, object: *mut c_void) {
        if let Some(cell) = self.cell(ordinal) {
            let _ = cell.set(DriverObject(object));
        }
    }
}
