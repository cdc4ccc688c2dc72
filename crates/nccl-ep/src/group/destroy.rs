//! Ending groups.

use std::sync::Arc;

use nccl_ext_core::{Error, Refused};

use super::{Group, Inner};

impl Group {
    /// Ends the group. Every rank calls it: for low latency it is a barrier.
    ///
    /// # Errors
    /// [`Error::Busy`], with the group, while handles live. [`Error::Diverged`] when this rank is
    /// out of step; the native group is then leaked. Otherwise what the library reports.
    #[doc(alias = "ncclEpGroupDestroy")]
    pub fn destroy(self) -> Result<(), Refused<Self>> {
        let mut inner = match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner,
            Err(inner) => {
                let live = Arc::strong_count(&inner) - 1;
                let error = Error::Busy {
                    what: "the group",
                    reason: format!(
                        "{live} handle(s) or step(s) live; end them first, with Handle::destroy or by \
                         dropping them"
                    ),
                };
                return Err(Refused::kept(error, Self { inner }));
            }
        };
        inner.in_step().map_err(Refused::lost)?;
        let destroyed = {
            let scope = inner.comm.activate();
            let _device = scope.map_err(Refused::lost)?;
            let _calls = inner.comm.lock();
            // SAFETY: the last owner gives up a live group without handles.
            unsafe { inner.call("ncclEpGroupDestroy", inner.api.ncclEpGroupDestroy, (inner.raw,)) }
        };
        match destroyed {
            Ok(()) => inner.destroyed = true,
            Err(error) => return Err(Refused::lost(error)),
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.destroyed {
            return;
        }
        // Destroying is a collective: here a peer may be gone, and a hang is worse than a leak.
        self.comm.mark_for_abort();
        std::mem::forget(self.allocator.take()); // what it gave is leaked, and so is it
        tracing::warn!(
            rank = self.comm.rank(),
            "EP group dropped without destroy(): its native memory is leaked and its communicator \
             will be aborted"
        );
    }
}
