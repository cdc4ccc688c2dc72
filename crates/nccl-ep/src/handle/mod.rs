//! Handles: the routing of one step, and what it needs in memory.

mod create;
mod ids;
mod layout_info;
mod memory;
mod snapshot;
mod update;

use std::fmt;
use std::sync::Arc;

use nccl_ep_sys::ncclEpHandle_t;
use nccl_ext_core::ids::IdCopies;
use nccl_ext_core::{Result, Usage, Use};

pub(crate) use ids::Looked;
pub(crate) use layout_info::LayoutInfoDescriptors;
pub use memory::HandleMemory;
pub use snapshot::{HandleSnapshot, HandleState};

use crate::config::HandleConfig;
use crate::enums::Layout;
use crate::group::SharedGroup;
use crate::mode::Mode;

/// Routing state of a group, for one [`Mode`] and top-k.
///
/// [`update`](Self::update) gives it the routing of a step. Its drop is local: no peer takes part.
#[doc(alias = "ncclEpHandle_t")]
pub struct Handle {
    pub(crate) group: Arc<SharedGroup>,
    pub(crate) raw: ncclEpHandle_t,
    pub(crate) mode: Mode,
    pub(crate) topk: u64,
    pub(crate) id: usize,
    config: HandleConfig,
    /// Of the last update.
    pub(crate) state: Option<HandleState>,
    /// Where ids are looked at on the host for [`Validation::Data`](crate::Validation::Data); empty
    /// without.
    host_ids: Box<[u8]>,
    /// Kept as long as the native handle, which borrows it.
    memory: Option<HandleMemory>,
    /// The ids that the library reads, kept like `memory`.
    pub(crate) ids: Box<IdCopies>,
}

// SAFETY: the library's handle is not tied to a thread; every native call on it holds the
// communicator's lock.
unsafe impl Send for Handle {}
// SAFETY: as above; `&Handle` offers no native call.
unsafe impl Sync for Handle {}

impl Handle {
    /// The group's algorithm with the layout that the handle was made for.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The layout it was made for.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.mode.layout()
    }

    /// Experts each token is sent to.
    #[must_use]
    pub fn num_topk(&self) -> usize {
        self.topk as usize
    }

    /// Frees the native handle and gives back the caller's memory. Local. Memory without
    /// [`usage`](nccl_ext_core::DeviceBuffer::usage) comes back when the group's work is done.
    ///
    /// # Errors
    /// The errors of [every call](crate#errors).
    #[doc(alias = "ncclEpHandleDestroy")]
    pub fn destroy(mut self) -> Result<Option<HandleMemory>> {
        self.free()?;
        if self.memory.as_ref().is_some_and(|memory| memory.usage().is_none()) {
            let _calls = self.group.comm.lock();
            self.group.last_use.wait()?;
        }
        Ok(self.memory.take())
    }

    /// The hooks of the caller's memory.
    pub(crate) fn memory_usage(&self) -> Option<&dyn Usage> {
        self.memory.as_ref().and_then(|memory| memory.usage())
    }

    /// The use of the caller's memory by a call of this handle.
    pub(crate) fn memory_use(&self) -> Use<'_> {
        Use::write(self.memory_usage())
    }

    fn free(&mut self) -> Result<()> {
        // Also the round of a step that was leaked.
        self.group.close_round(self.id);
        let raw = std::mem::replace(&mut self.raw, core::ptr::null_mut());
        if raw.is_null() {
            return Ok(());
        }
        let _device = self.group.comm.activate()?;
        let _calls = self.group.comm.lock();
        if self.group.has_allocator() {
            self.group.last_use.wait()?; // an allocator's free need not wait for the device
        }
        // After a trap the native call would end the process (EP 2.5): the handle is left behind.
        self.group.last_use.is_done()?;
        // SAFETY: a live handle of a live group, given up here. Library memory is freed by a
        // synchronising free, an allocator's after the wait above, the caller's by its owner after
        // enqueued work.
        unsafe {
            let function = self.group.api.ncclEpHandleDestroy;
            self.group.call("ncclEpHandleDestroy", function, (raw,))
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::error!(%error, "an EP handle was leaked");
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("mode", &self.mode)
            .field("topk", &self.topk)
            .finish_non_exhaustive()
    }
}
