//! NCCL's table: what the extensions and their callers need of it.

mod collectives;
mod comm;
mod memory;
mod reduce;
mod window;

use core::ffi::{c_char, c_int, c_void};

use nccl_ext_core::raw::{
    NCCL_VERSION_CODE, NcclApi, cudaStream_t, ncclComm_t, ncclConfig_t, ncclDataType_t,
    ncclResult_t,
};

pub(crate) use comm::member;
pub(crate) use window::find as find_window;

use crate::entry::entry;
use crate::refusal::{FailureClass, Refusal, require};

/// The version whose behaviour this is.
pub(crate) const VERSION: c_int = NCCL_VERSION_CODE as c_int;

pub(crate) const TABLE: NcclApi = NcclApi {
    ncclGetVersion: get_version,
    ncclGetUniqueId: comm::get_unique_id,
    ncclCommInitRank: comm::init_rank,
    ncclCommInitRankConfig: comm::init_rank_config,
    ncclCommCount: comm::count,
    ncclCommUserRank: comm::user_rank,
    ncclCommCuDevice: comm::cu_device,
    ncclCommFinalize: comm::finalize,
    ncclCommDestroy: comm::destroy,
    ncclCommAbort: comm::abort,
    ncclCommGetAsyncError: comm::get_async_error,
    ncclGetLastError: comm::get_last_error,
    ncclGetErrorString: get_error_string,
    ncclGroupStart: group_start,
    ncclGroupEnd: group_end,
    ncclAllGather: collectives::all_gather,
    ncclAllReduce: collectives::all_reduce,
    ncclBroadcast: collectives::broadcast,
    ncclCommQueryProperties: comm::query_properties,
    ncclTeamLsa: comm::team_lsa,
    ncclCommWindowRegister: window::register,
    ncclCommWindowDeregister: window::deregister,
    ncclWinGetUserPtr: window::user_pointer,
    ncclMemAlloc: memory::alloc,
    ncclMemFree: memory::free,
    ncclCommSplit: comm_split,
    ncclSend: send,
    ncclRecv: recv,
};

unsafe extern "C" fn get_version(version: *mut c_int) -> ncclResult_t {
    entry("ncclGetVersion", |_| {
        // SAFETY: the C contract: NULL or writable.
        unsafe { store(version, "version", VERSION) }
    })
}

/// # Safety
/// `to` is NULL or writable.
pub(crate) unsafe fn store<T>(to: *mut T, name: &str, value: T) -> crate::refusal::Outcome {
    require(!to.is_null(), || Refusal::null(FailureClass::Return, name))?;
    // SAFETY: this function's contract.
    unsafe { to.write(value) };
    Ok(())
}

unsafe extern "C" fn get_error_string(result: ncclResult_t) -> *const c_char {
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

/// A call that this backend does not offer.
fn unsupported(call: &'static str) -> ncclResult_t {
    entry(call, |_| Err(Refusal::unsupported(call, ncclResult_t::ncclInvalidUsage)))
}

unsafe extern "C" fn comm_split(
    _comm: ncclComm_t,
    _color: c_int,
    _key: c_int,
    _new: *mut ncclComm_t,
    _config: *mut ncclConfig_t,
) -> ncclResult_t {
    unsupported("ncclCommSplit")
}

unsafe extern "C" fn send(
    _buffer: *const c_void,
    _count: usize,
    _data_type: ncclDataType_t,
    _peer: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    unsupported("ncclSend")
}

unsafe extern "C" fn recv(
    _buffer: *mut c_void,
    _count: usize,
    _data_type: ncclDataType_t,
    _peer: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    unsupported("ncclRecv")
}

std::thread_local! {
    static GROUP_DEPTH: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// Groups are accepted and change nothing: every call is complete when it returns.
unsafe extern "C" fn group_start() -> ncclResult_t {
    entry("ncclGroupStart", |_| {
        GROUP_DEPTH.set(GROUP_DEPTH.get().saturating_add(1));
        Ok(())
    })
}

unsafe extern "C" fn group_end() -> ncclResult_t {
    entry("ncclGroupEnd", |_| {
        let depth = GROUP_DEPTH.get();
        require(depth > 0, || {
            Refusal::usage(
                FailureClass::Return,
                "ncclGroupEnd",
                "every end has a start on the same thread",
                "an open group",
                "none",
            )
        })?;
        GROUP_DEPTH.set(depth - 1);
        Ok(())
    })
}
