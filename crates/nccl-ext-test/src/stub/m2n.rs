//! libnccl_m2n as a stub.

use core::ffi::c_char;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use nccl_ext_core::raw::*;
use nccl_ext_core::{Backend, Comm, LibraryInfo, MemorySpace, Version};
use nccl_m2n_sys::*;

use super::calls::called;
use super::nccl;
pub use super::{
    comm_on, fail_next, set_capturing, set_domain, set_network, set_peers, take_calls,
};

/// A backend of stubs whose tensors live in `memory`.
pub fn backend(memory: MemorySpace) -> Backend {
    let nccl = NcclApi { ncclAllGather: nccl::all_gather_of_processes, ..nccl::TABLE };
    let info = LibraryInfo::new("libnccl.so.2", Version::new(2, 30, 7));
    let builder = super::builder(memory).nccl(nccl).library(info);
    // SAFETY: the stubs keep to the contracts, as far as they do anything.
    unsafe { from_table(builder, TABLE, NEEDS).build() }
}

/// Rank 0 of `ranks` on a fresh stub backend with host tensors.
pub fn comm(ranks: usize) -> Comm {
    comm_on(backend(MemorySpace::Host), ranks, 0)
}

thread_local! {
    static PASSED: Cell<[bool; 2]> = const { Cell::new([false; 2]) };
}

/// Whether the last reshard of this thread passed memory for source and destination.
pub fn passed() -> [bool; 2] {
    PASSED.get()
}

const TABLE: M2nApi = M2nApi {
    ncclM2nInit: init,
    ncclM2nFinalize: finalize,
    ncclM2nGetLastError: last_error,
    ncclM2nGroupStart: group_start,
    ncclM2nGroupEnd: group_end,
    ncclM2nGroupAbort: group_abort,
    ncclReshard: reshard,
    ncclReshardWithWindow: reshard_with_window,
};

unsafe extern "C" fn init(
    out: *mut ncclM2nHandle_t,
    config: *const ncclM2nConfig_t,
) -> ncclResult_t {
    static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(1);
    let number = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's out pointer and structure.
    unsafe {
        assert_eq!(((*config).size, (*config).magic), (24, NCCL_M2N_API_MAGIC));
        *out = core::ptr::without_provenance_mut(number);
    }
    called("ncclM2nInit")
}

unsafe extern "C" fn finalize(_: ncclM2nHandle_t) -> ncclResult_t {
    called("ncclM2nFinalize")
}

unsafe extern "C" fn last_error() -> *const c_char {
    c"the stub's words".as_ptr()
}

unsafe extern "C" fn group_start() -> ncclResult_t {
    called("ncclM2nGroupStart")
}

unsafe extern "C" fn group_end() -> ncclResult_t {
    called("ncclM2nGroupEnd")
}

unsafe extern "C" fn group_abort() -> ncclResult_t {
    called("ncclM2nGroupAbort")
}

/// # Safety
/// Both descriptors are complete.
unsafe fn see(source: *const ncclDistTensor_t, destination: *const ncclDistTensor_t) {
    // SAFETY: this function's contract.
    unsafe {
        assert_eq!(((*source).size, (*(*source).mesh).size), (56, 32));
        PASSED.set([!(*source).dataPtr.is_null(), !(*destination).dataPtr.is_null()]);
    }
}

unsafe extern "C" fn reshard(
    _: ncclM2nHandle_t,
    _: ncclComm_t,
    source: *const ncclDistTensor_t,
    destination: *const ncclDistTensor_t,
    _: cudaStream_t,
) -> ncclResult_t {
    // SAFETY: the C contract.
    unsafe { see(source, destination) };
    called("ncclReshard")
}

unsafe extern "C" fn reshard_with_window(
    _: ncclM2nHandle_t,
    _: ncclComm_t,
    _: ncclWindow_t,
    source: *const ncclDistTensor_t,
    destination: *const ncclDistTensor_t,
    _: cudaStream_t,
) -> ncclResult_t {
    // SAFETY: the C contract.
    unsafe { see(source, destination) };
    called("ncclReshardWithWindow")
}
