//! The object behind an `ncclEpHandle_t`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nccl_ep_sys::ncclEpHandle_t;

use crate::ep::allocator::Block;
use crate::ep::group::{Group, View};
use crate::ep::ht::HighThroughput;
use crate::ep::ll::LowLatency;
use crate::ep::settings::HandleSettings;
use crate::refusal::{FailureClass, Outcome, Refusal};

/// A handle. An `ncclEpHandle_t` points to one.
pub(crate) struct Handle {
    group: Arc<Group>,
    /// `None` when creation failed after the out pointer was set.
    ready: Option<Ready>,
}

/// What a handle knows since its creation, and what it learns with each step. The latter is shared
/// with work that outlives the call, and the handle.
pub(crate) struct Ready {
    pub(crate) settings: HandleSettings,
    pub(crate) low: Arc<LowLatency>,
    pub(crate) high: Arc<HighThroughput>,
    /// Handle memory from the caller's allocator. Nothing is kept in it.
    pub(super) _block: Option<Block>,
}

impl Handle {
    /// The group and the handle, unless it is what a failed creation left behind.
    pub(crate) fn view(&self) -> Outcome<(View<'_>, &Ready)> {
        let view = self.group.view()?;
        let ready = self.ready.as_ref().ok_or_else(|| {
            Refusal::usage(
                FailureClass::UndefinedBehaviour,
                "handle",
                "a handle whose creation failed can only be destroyed",
                "a handle that was created with success",
                "what a failed ncclEpInitHandle left",
            )
        })?;
        Ok((view, ready))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.group.live_handles.fetch_sub(1, Ordering::AcqRel);
    }
}

/// # Safety
/// `handle` is NULL or a live handle of this backend, for as long as the result is used.
pub(crate) unsafe fn live<'a>(handle: ncclEpHandle_t, class: FailureClass) -> Outcome<&'a Handle> {
    let raw: *const Handle = handle.cast_const().cast();
    // SAFETY: this function's contract.
    unsafe { raw.as_ref() }.ok_or_else(|| Refusal::null(class, "handle"))
}

/// A handle for the caller to keep.
pub(crate) fn hand_out(group: &Arc<Group>, ready: Option<Ready>) -> ncclEpHandle_t {
    group.live_handles.fetch_add(1, Ordering::AcqRel);
    Box::into_raw(Box::new(Handle { group: Arc::clone(group), ready })).cast()
}

/// # Safety
/// `handle` is NULL or a live handle that nobody uses.
pub(crate) unsafe fn destroy(handle: ncclEpHandle_t) -> Outcome {
    if !handle.is_null() {
        // SAFETY: this function's contract; `hand_out` made the box.
        drop(unsafe { Box::from_raw(handle.cast::<Handle>()) });
    }
    Ok(())
}
