//! Device memory from the application's own allocator.

use core::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use nccl_ep_sys::ncclEpAllocConfig_t;
use nccl_ext_core::inside_callback;
use nccl_ext_core::raw::cudaError_t;

/// Gives the library its workspaces and handle memory, in place of `cudaMalloc`.
///
/// A group keeps its allocator as long as it lives. A panic in the allocator does not pass through
/// the library: it counts as a refusal, and what it was raised with is leaked. The library calls from
/// inside a call of the communicator: other calls of a communicator are
/// [`Error::Busy`](crate::Error::Busy) there.
///
/// # Safety
/// [`allocate`](Self::allocate) gives memory of the communicator's device of at least the asked
/// size and 256-byte alignment, which nothing else uses until [`free`](Self::free) gets it back.
#[doc(alias = "ncclEpAllocConfig_t")]
pub unsafe trait DeviceAllocator: Send + Sync + 'static {
    /// Memory of `bytes` bytes, or `None` when there is none.
    #[doc(alias = "ncclEpAllocFn_t")]
    fn allocate(&self, bytes: usize) -> Option<NonNull<c_void>>;

    /// Takes memory back, once the group's calls that used it are done.
    ///
    /// # Safety
    /// `memory` came from [`allocate`](Self::allocate) and is given back once.
    #[doc(alias = "ncclEpFreeFn_t")]
    unsafe fn free(&self, memory: NonNull<c_void>);
}

/// An allocator at an address that stays, as the library's context.
pub(crate) struct PinnedAllocator(Box<Arc<dyn DeviceAllocator>>);

impl PinnedAllocator {
    pub(crate) fn new(allocator: Arc<dyn DeviceAllocator>) -> Self {
        Self(Box::new(allocator))
    }

    /// Both functions and their context: never one without the other (EP 2.1 #12).
    pub(crate) fn to_raw(&self) -> ncclEpAllocConfig_t {
        let context: *const Arc<dyn DeviceAllocator> = &*self.0;
        ncclEpAllocConfig_t {
            alloc_fn: Some(allocate),
            free_fn: Some(free),
            context: context.cast_mut().cast(),
        }
    }
}

/// # Safety
/// `context` is what [`PinnedAllocator::to_raw`] gave, of hooks that live; `out` may be written.
unsafe extern "C" fn allocate(
    out: *mut *mut c_void,
    bytes: usize,
    context: *mut c_void,
) -> cudaError_t {
    // SAFETY: this function's contract; the hooks outlive the group whose calls come here.
    let allocator = unsafe { &*context.cast_const().cast::<Arc<dyn DeviceAllocator>>() };
    match catch_unwind(AssertUnwindSafe(|| inside_callback(|| allocator.allocate(bytes)))) {
        Ok(Some(memory)) => {
            // SAFETY: this function's contract.
            unsafe { out.write(memory.as_ptr()) };
            cudaError_t::cudaSuccess
        }
        Ok(None) => cudaError_t::cudaErrorMemoryAllocation,
        Err(payload) => {
            // Its drop is the caller's code as well: a panic there would end the process.
            std::mem::forget(payload);
            tracing::error!(bytes, "an EP group's allocator panicked");
            cudaError_t::cudaErrorMemoryAllocation
        }
    }
}

/// # Safety
/// As [`allocate`]; `memory` came from it.
unsafe extern "C" fn free(memory: *mut c_void, context: *mut c_void) -> cudaError_t {
    let Some(memory) = NonNull::new(memory) else { return cudaError_t::cudaSuccess };
    // SAFETY: this function's contract.
    let allocator = unsafe { &*context.cast_const().cast::<Arc<dyn DeviceAllocator>>() };
    // SAFETY: the library gives each allocation back once.
    match catch_unwind(AssertUnwindSafe(|| inside_callback(|| unsafe { allocator.free(memory) }))) {
        Ok(()) => cudaError_t::cudaSuccess,
        Err(payload) => {
            // As in `allocate`.
            std::mem::forget(payload);
            tracing::error!("an EP group's allocator panicked in free; its memory is leaked");
            cudaError_t::cudaErrorInvalidValue
        }
    }
}
