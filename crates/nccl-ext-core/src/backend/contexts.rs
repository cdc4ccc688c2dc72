//! The primary contexts of a backend's devices.

use std::sync::OnceLock;

use crate::driver::CuContext;

/// Devices whose context is remembered; of others the driver is asked each time.
const REMEMBERED: usize = 64;

/// A device's primary context, kept for the process.
#[derive(Debug, Clone, Copy)]
struct PrimaryContext(CuContext);

// SAFETY: a CUDA context may be made current on any thread.
unsafe impl Send for PrimaryContext {}
// SAFETY: as above.
unsafe impl Sync for PrimaryContext {}

/// The contexts that were asked for, by the device's ordinal.
pub(crate) struct Contexts([OnceLock<PrimaryContext>; REMEMBERED]);

impl Contexts {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; REMEMBERED])
    }

    fn cell(&self, ordinal: i32) -> Option<&OnceLock<PrimaryContext>> {
        usize::try_from(ordinal).ok().and_then(|at| self.0.get(at))
    }

    /// The context of a device, if it was asked for before.
    pub(crate) fn get(&self, ordinal: i32) -> Option<CuContext> {
        self.cell(ordinal)?.get().map(|PrimaryContext(context)| *context)
    }

    /// Remembers the context of a device; the same one, if another thread was first.
    pub(crate) fn remember(&self, ordinal: i32, context: CuContext) {
        if let Some(cell) = self.cell(ordinal) {
            let _ = cell.set(PrimaryContext(context));
        }
    }
}
