//! NCCL's table: what the extensions and their callers need of it.

mod buffers;
mod collectives;
mod comm;
mod groups;
mod memory;
mod reduce;
mod unsupported;
mod version;
mod window;

use nccl_ext_core::raw::NcclApi;

pub(crate) use comm::member;
pub(crate) use version::VERSION;
pub(crate) use window::find as find_window;

/// The table of the backend whose calls return before their work is done.
pub(crate) const DEFERRED_TABLE: NcclApi = NcclApi {
    ncclCommInitRank: comm::init_rank_deferred,
    ncclCommInitRankConfig: comm::init_rank_config_deferred,
    ncclMemAlloc: memory::alloc_deferred,
    ncclMemFree: memory::free_deferred,
    ..TABLE
};

pub(crate) const TABLE: NcclApi = NcclApi {
    ncclGetVersion: version::get_version,
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
    ncclGetErrorString: version::get_error_string,
    ncclGroupStart: groups::group_start,
    ncclGroupEnd: groups::group_end,
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
    ncclCommSplit: unsupported::comm_split,
    ncclSend: unsupported::send,
    ncclRecv: unsupported::recv,
};
