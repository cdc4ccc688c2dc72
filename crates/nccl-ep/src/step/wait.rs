//! Whether a step's work is done, and waiting for it.

use std::borrow::BorrowMut;
use std::time::Duration;

use nccl_ext_core::Result;

use super::Step;
#[cfg(doc)]
use crate::Error;
use crate::handle::Handle;

impl<H: BorrowMut<Handle>> Step<'_, H> {
    /// Whether everything that calls of the group have enqueued so far is done, this step's among it.
    /// Asks, and does not wait. Local; always true where calls are complete when they return.
    ///
    /// # Errors
    /// What the driver reports, also of the work itself.
    #[doc(alias = "cuEventQuery")]
    pub fn is_done(&self) -> Result<bool> {
        let group = &self.handle().group;
        let _device = group.comm.activate()?;
        let _calls = group.comm.lock();
        group.last_use.is_done()
    }

    /// Waits until [`is_done`](Self::is_done), but no longer than `limit`, and looks out for an
    /// asynchronous error of the communicator meanwhile. Local. What still runs then goes on running:
    /// nothing can stop a kernel.
    ///
    /// # Errors
    /// The asynchronous error, if there is one; [`Error::Timeout`] past the limit;
    /// [`Error::Poisoned`] when the communicator was aborted and the work is not done; what the driver
    /// reports.
    pub fn wait_for(&self, limit: Duration) -> Result<()> {
        self.handle().group.comm.wait_until(limit, || self.is_done())
    }
}
