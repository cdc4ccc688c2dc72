//! The caller's allocator. This backend keeps its state elsewhere, and calls it where the vendor's
//! library does (EP 2.1 #29, 3.2 HT f).

use core::ffi::c_void;

use nccl_ep_sys::ncclEpAllocConfig_t;
use nccl_ext_core::raw::cudaError_t;

use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The caller's allocator, or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allocator(pub(super) ncclEpAllocConfig_t);

// SAFETY: the caller says that its functions and context may be used from the threads that use
// the group.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

impl Allocator {
    /// Allocates through the caller's function; without one there is nothing to allocate, because
    /// this backend keeps its state elsewhere.
    pub(super) fn allocate(&self, bytes: usize) -> Outcome<Option<Block>> {
        let Some(alloc_fn) = self.0.alloc_fn else { return Ok(None) };
        let mut pointer = core::ptr::null_mut();
        // SAFETY: the caller's function keeps the contract of `ncclEpAllocFn_t`.
        let code = unsafe { alloc_fn(&mut pointer, bytes, self.0.context) };
        require(code == cudaError_t::cudaSuccess, || {
            Refusal::usage(
                FailureClass::Throw,
                "alloc_fn",
                "the allocator gives the memory it is asked for",
                format_args!("{bytes} bytes"),
                format_args!("cudaError_t {}", code.0),
            )
        })?;
        Ok(Some(Block { pointer, allocator: *self }))
    }
}

/// Memory of the caller's allocator.
pub(super) struct Block {
    pointer: *mut c_void,
    allocator: Allocator,
}

// SAFETY: as `Allocator`.
unsafe impl Send for Block {}
// SAFETY: nothing is read through it.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn pointer(&self) -> *mut u8 {
        self.pointer.cast()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(free_fn) = self.allocator.0.free_fn {
            // SAFETY: the pointer came from the allocator's other half and is freed once. The
            // result is ignored, as the vendor's library does.
            let _ = unsafe { free_fn(self.pointer, self.allocator.0.context) };
        }
    }
}
