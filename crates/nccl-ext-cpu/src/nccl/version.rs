//! What NCCL says of itself: its version, and words for its codes.

use core::ffi::{c_char, c_int};

use nccl_ext_core::raw::{NCCL_VERSION_CODE, ncclResult_t};

use crate::entry::{entry, store};

/// The version whose behaviour this is.
pub(crate) const VERSION: c_int = NCCL_VERSION_CODE as c_int;

pub(super) unsafe extern "C" fn get_version(version: *mut c_int) -> ncclResult_t {
    entry("ncclGetVersion", |_| {
        // SAFETY: the C contract: NULL or writable.
        unsafe { store(version, "version", VERSION) }
    })
}

pub(super) unsafe extern "C" fn get_error_string(result: ncclResult_t) -> *const c_char {
    let text = match result {
        ncclResult_t::ncclSuccess => c"no error",
        ncclResult_t::ncclUnhandledCudaError => c"unhandled cuda error",
        ncclResult_t::ncclSystemError => c"unhandled system error",
        ncclResult_t::ncclInternalError => c"internal error",
        ncclResult_t::ncclInvalidArgument => c"invalid argument",
        ncclResult_t::ncclInvalidUsage => c"invalid usage",
        ncclResult_t::ncclRemoteError => c"a peer failed",
        ncclResult_t::ncclInProgress => c"in progress",
        ncclResult_t::ncclTimeout => c"timed out waiting for a peer",
        _ => c"unknown result code",
    };
    text.as_ptr()
}
