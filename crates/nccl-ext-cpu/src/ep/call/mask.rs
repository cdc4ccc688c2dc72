//! The calls of groups with masks, and asynchronous errors (EP 6.2).

use core::ffi::c_int;

use nccl_ep_sys::ncclEpGroup_t;
use nccl_ext_core::raw::cudaStream_t;

use crate::entry::Scope;
use crate::ep::group::{self, Uses, View};
use crate::ep::mask::Masks;
use crate::ep::settings::{self, Algorithm, Settings};
use crate::lock::lock;
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// Runs `body` on a group that has masks.
///
/// # Safety
/// `group` is NULL or a live group of this backend.
unsafe fn with_masks(
    scope: Option<&Scope>,
    group: ncclEpGroup_t,
    body: impl FnOnce(&View<'_>, &Masks) -> Outcome,
) -> Outcome {
    let throw = FailureClass::Throw;
    // SAFETY: this function's contract.
    let group = unsafe { group::shared(group, throw)? };
    let view = group.view()?;
    if let Some(scope) = scope {
        scope.enter(view.member);
    }
    require(view.settings.mask, || {
        let rule = "the group was created with a mask";
        let ret = FailureClass::Return;
        Refusal::usage(ret, "enable_mask", rule, "not 0", 0)
    })?;
    let low = view.settings.algorithm == Algorithm::LowLatency;
    let masks = view.masks.filter(|_| low).ok_or_else(|| {
        let rule = "only low latency has a mask";
        Refusal::usage(throw, "ep_group", rule, "a low-latency group", "high throughput")
    })?;
    body(&view, masks)
}

/// # Safety
/// `group` is NULL or live; `out` is NULL or has an element for each rank.
pub(crate) unsafe fn query(group: ncclEpGroup_t, out: *mut c_int, stream: cudaStream_t) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(None, group, |view, _| {
            require(!out.is_null(), || Refusal::null(FailureClass::Throw, "mask_status"))?;
            let out = CallersMask(out);
            view.submit_operation(stream, "ncclEpMaskQuery", Uses::Reads, move |view| {
                queue::write(out.pointer().cast(), out.bytes(view))?;
                view.masks.into_iter().for_each(|masks| masks.read(out.pointer()));
                Ok(())
            })
        })
    }
}

/// A mask in the caller's memory, who keeps it until the stream has passed the call (EP 6.2).
#[derive(Clone, Copy)]
struct CallersMask(*mut c_int);

// SAFETY: the caller keeps it for whatever thread does the stream's work.
unsafe impl Send for CallersMask {}

impl CallersMask {
    fn pointer(self) -> *mut c_int {
        self.0
    }

    fn bytes(self, group: &View<'_>) -> usize {
        group.settings.ranks * size_of::<c_int>()
    }
}

/// # Safety
/// As [`query`].
pub(crate) unsafe fn update(
    group: ncclEpGroup_t,
    mask: *const c_int,
    stream: cudaStream_t,
) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(None, group, |view, _| {
            require(!mask.is_null(), || Refusal::null(FailureClass::Throw, "mask"))?;
            let mask = CallersMask(mask.cast_mut());
            view.submit_operation(stream, "ncclEpMaskUpdate", Uses::Writes, move |view| {
                queue::read(mask.pointer().cast(), mask.bytes(view))?;
                view.masks.into_iter().for_each(|masks| masks.write(mask.pointer()));
                Ok(())
            })
        })
    }
}

/// # Safety
/// `group` is NULL or live; `out` is NULL or writable.
pub(crate) unsafe fn async_error(group: ncclEpGroup_t, out: *mut c_int) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(None, group, |_, masks| {
            require(!out.is_null(), || Refusal::null(FailureClass::Throw, "error_out"))?;
            out.write(masks.has_error().into());
            Ok(())
        })
    }
}

/// # Safety
/// `group` is NULL or live.
pub(crate) unsafe fn clear_error(group: ncclEpGroup_t) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(None, group, |_, masks| {
            masks.clear_error();
            Ok(())
        })
    }
}

/// # Safety
/// `group` is NULL or live.
pub(crate) unsafe fn clean(scope: &Scope, group: ncclEpGroup_t, stream: cudaStream_t) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        with_masks(Some(scope), group, |view, masks| {
            check_clean(view.settings, masks.has_handles())?;
            lock(view.staging).require_nothing_pending()?;
            // Waits: the vendor's call synchronizes the stream (EP 6.2).
            view.wait_for_operation(stream, "ncclEpMaskClean", Uses::Writes, |view| {
                let clean = |masks: &Masks| masks.clean(view.member, view.settings.timeout);
                view.masks.into_iter().for_each(clean);
                Ok(())
            })
        })
    }
}

fn check_clean(settings: &Settings, handles: bool) -> Outcome {
    let throw = FailureClass::Throw;
    require(handles || settings.rdma_buffer_size != 0, || {
        let rule = "there is a communication buffer to clean";
        let expected = "a handle, or rdma_buffer_size in the group configuration";
        Refusal::usage(throw, "ep_group", rule, expected, "none yet")
    })?;
    // It lays the buffer out for rank-major handles of 32 experts a token (EP 12, #13).
    let buffer = settings::ll_buffer(settings, true, 32);
    let wrong = buffer.regions.into_iter().find(|bytes| !bytes.is_multiple_of(16));
    require(wrong.is_none(), || {
        let rule = "the regions of a rank-major buffer are multiples of 16 bytes";
        let found = format_args!("{} bytes", wrong.unwrap_or(0)).to_string();
        Refusal::argument(throw, "max_token_bytes", rule, "a multiple of 16", found)
    })?;
    require(settings.ranks <= 256, || {
        let rule = "the cleaning kernel has a thread for each rank";
        Refusal::usage(FailureClass::Trap, "comm", rule, "at most 256 ranks", settings.ranks)
    })
}
