//! Ending groups.

use std::sync::Arc;

use nccl_ext_core::{Error, Refused};

use super::{Group, SharedGroup};

impl Group {
    /// Ends the group, once the work of its calls is done. Every rank calls it: for low latency it is a
    /// barrier.
    ///
    /// # Errors
    /// [`Error::Busy`], with the group, while handles live. The other errors of
    /// [every call](crate#errors) come without it: the native group is then leaked.
    #[doc(alias = "ncclEpGroupDestroy")]
    pub fn destroy(self) -> Result<(), Refused<Self>> {
        let mut shared = match Arc::try_unwrap(self.shared) {
            Ok(shared) => shared,
            Err(shared) => {
                let live = Arc::strong_count(&shared) - 1;
                let error = Error::Busy {
                    what: "the group",
                    reason: format!(
                        "{live} handle(s) or step(s) live; end them first, with Handle::destroy or by \
                         dropping them"
                    ),
                };
                return Err(Refused::kept(error, Self { shared }));
            }
        };
        shared.in_step().map_err(Refused::lost)?;
        let destroyed = {
            let scope = shared.comm.activate();
            let _device = scope.map_err(Refused::lost)?;
            let _calls = shared.comm.lock();
            // After a trap the native call would end the process (EP 2.5): what is native is left
            // behind, and the peers, for whom it is a barrier, are told.
            if let Err(error) = shared.last_use.wait() {
                shared.comm.fail(&error);
                return Err(Refused::lost(error));
            }
            // SAFETY: the last owner gives up a live group without handles.
            unsafe {
                shared.call("ncclEpGroupDestroy", shared.api.ncclEpGroupDestroy, (shared.raw,))
            }
        };
        match destroyed {
            Ok(()) => shared.destroyed = true,
            Err(error) => return Err(Refused::lost(error)),
        }
        Ok(())
    }
}

impl Drop for SharedGroup {
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
