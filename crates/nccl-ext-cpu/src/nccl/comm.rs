//! Communicators.

use core::ffi::{c_char, c_int};
use std::sync::Arc;

use nccl_ext_core::raw::{
    NCCL_API_MAGIC, ncclComm_t, ncclCommProperties_t, ncclConfig_t, ncclGinType_t, ncclResult_t,
    ncclTeam_t, ncclUniqueId,
};

use super::version::VERSION;
use crate::config::{self, CpuConfig};
use crate::entry::{Scope, entry, store};
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal, last_text, note, require};
use crate::world::{self, Member};

/// The member behind a communicator.
///
/// # Safety
/// `comm` is NULL or a live communicator of this backend.
pub(crate) unsafe fn member(comm: ncclComm_t) -> Outcome<Arc<Member>> {
    require(!comm.is_null(), || Refusal::null(FailureClass::Return, "comm"))?;
    let raw: *const Member = comm.cast_const().cast();
    // SAFETY: a live communicator is what `Arc::into_raw` gave in `init`. The extra owner keeps
    // the member alive through this call, also when another thread aborts the communicator.
    unsafe {
        Arc::increment_strong_count(raw);
        Ok(Arc::from_raw(raw))
    }
}

pub(super) unsafe extern "C" fn get_unique_id(id: *mut ncclUniqueId) -> ncclResult_t {
    entry("ncclGetUniqueId", |_| {
        let new = config::to_raw(config::encode(&CpuConfig::default()));
        // SAFETY: the C contract: NULL or writable.
        unsafe { store(id, "uniqueId", new) }
    })
}

/// More threads than any machine runs side by side.
const MOST_RANKS: usize = 4096;

/// # Safety
/// `out` is NULL or writable.
unsafe fn init(
    out: *mut ncclComm_t,
    nranks: c_int,
    id: &ncclUniqueId,
    rank: c_int,
    deferred: bool,
) -> Outcome {
    require(!out.is_null(), || Refusal::null(FailureClass::Return, "comm"))?;
    let id = config::from_raw(id);
    let settings = config::decode(&id).ok_or_else(|| {
        Refusal::argument(
            FailureClass::Return,
            "commId",
            "the id is one that this backend made",
            "an id of ncclGetUniqueId",
            "other bytes",
        )
    })?;
    require(settings.deferred.is_some() == deferred, || {
        let names = |deferred| if deferred { "deferred" } else { "not deferred" };
        Refusal::argument(
            FailureClass::Return,
            "commId",
            "the world is one of this backend's: deferred_backend() has those of CpuConfig::deferred, \
             backend() has the others",
            format_args!("a world that is {}", names(deferred)),
            format_args!("one that is {}", names(!deferred)),
        )
    })?;
    let (Ok(size), Ok(index)) = (usize::try_from(nranks), usize::try_from(rank)) else {
        return Err(rank_refusal(nranks, rank));
    };
    require(index < size && size <= MOST_RANKS, || rank_refusal(nranks, rank))?;
    let member = world::join(id, &settings, size, index)?;
    // SAFETY: this function's contract.
    unsafe { out.write(Arc::into_raw(member).cast_mut().cast()) };
    Ok(())
}

fn rank_refusal(nranks: c_int, rank: c_int) -> Refusal {
    Refusal::argument(
        FailureClass::Return,
        "rank",
        "a rank is one of the communicator's",
        format_args!("0 <= rank < nranks <= {MOST_RANKS}"),
        format_args!("rank {rank} of {nranks}"),
    )
}

macro_rules! init_functions {
    ($($rank:ident, $config:ident: $deferred:literal;)+) => {$(
        pub(super) unsafe extern "C" fn $rank(
            out: *mut ncclComm_t,
            nranks: c_int,
            id: ncclUniqueId,
            rank: c_int,
        ) -> ncclResult_t {
            entry("ncclCommInitRank", |_| {
                // SAFETY: the C contract: NULL or writable.
                unsafe { init(out, nranks, &id, rank, $deferred) }
            })
        }

        /// The configuration tunes what this backend does not have. Joining blocks whatever it says.
        pub(super) unsafe extern "C" fn $config(
            out: *mut ncclComm_t,
            nranks: c_int,
            id: ncclUniqueId,
            rank: c_int,
            _config: *mut ncclConfig_t,
        ) -> ncclResult_t {
            entry("ncclCommInitRankConfig", |_| {
                // SAFETY: the C contract: NULL or writable.
                unsafe { init(out, nranks, &id, rank, $deferred) }
            })
        }
    )+};
}

init_functions! {
    init_rank, init_rank_config: false;
    init_rank_deferred, init_rank_config_deferred: true;
}

/// Answers a question about a communicator with one number.
///
/// # Safety
/// `comm` is NULL or live; `out` is NULL or writable.
unsafe fn ask(
    call: &'static str,
    comm: ncclComm_t,
    out: *mut c_int,
    answer: impl FnOnce(&Member) -> c_int,
) -> ncclResult_t {
    entry(call, |_| {
        // SAFETY: this function's contract.
        let member = unsafe { member(comm)? };
        // SAFETY: this function's contract.
        unsafe { store(out, "the result", answer(&member)) }
    })
}

pub(super) unsafe extern "C" fn count(comm: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the C contract of ncclCommCount.
    unsafe { ask("ncclCommCount", comm, out, |member| member.size() as c_int) }
}

pub(super) unsafe extern "C" fn user_rank(comm: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the C contract of ncclCommUserRank.
    unsafe { ask("ncclCommUserRank", comm, out, |member| member.rank() as c_int) }
}

pub(super) unsafe extern "C" fn cu_device(comm: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the C contract of ncclCommCuDevice.
    unsafe { ask("ncclCommCuDevice", comm, out, |member| member.device()) }
}

/// Waits for what is enqueued.
pub(super) unsafe extern "C" fn finalize(comm: ncclComm_t) -> ncclResult_t {
    entry("ncclCommFinalize", |_| {
        // SAFETY: the C contract of ncclCommFinalize.
        let member = unsafe { member(comm)? };
        queue::drain(member.deferral())
    })
}

const DESTROY: &str = "ncclCommDestroy";

/// Takes this rank out of its world. Local: a peer that still waits for it is told.
///
/// # Safety
/// `comm` is NULL or live, and is not used afterwards.
unsafe fn leave(comm: ncclComm_t, how: &str) -> Outcome {
    // SAFETY: this function's contract.
    let member = unsafe { member(comm)? };
    let rank = member.rank();
    // What is enqueued comes first, unless the rank gives up. How it went was told where it was waited
    // for.
    if how == DESTROY && !std::thread::panicking() {
        let _ = queue::drain(member.deferral());
    }
    member.leave(if std::thread::panicking() {
        format!("rank {rank} panicked")
    } else {
        format!("rank {rank} left the communicator ({how})")
    });
    // SAFETY: the caller gives up the owner that `init` gave it.
    drop(unsafe { Arc::from_raw(comm.cast_const().cast::<Member>()) });
    Ok(())
}

pub(super) unsafe extern "C" fn destroy(comm: ncclComm_t) -> ncclResult_t {
    entry("ncclCommDestroy", |_| {
        // SAFETY: the C contract of ncclCommDestroy.
        unsafe { leave(comm, DESTROY) }
    })
}

pub(super) unsafe extern "C" fn abort(comm: ncclComm_t) -> ncclResult_t {
    entry("ncclCommAbort", |_| {
        // SAFETY: the C contract of ncclCommAbort.
        unsafe { leave(comm, "ncclCommAbort") }
    })
}

pub(super) unsafe extern "C" fn get_async_error(
    comm: ncclComm_t,
    out: *mut ncclResult_t,
) -> ncclResult_t {
    let mut failure = None;
    let result = entry("ncclCommGetAsyncError", |_| {
        // SAFETY: the C contract of ncclCommGetAsyncError.
        let member = unsafe { member(comm)? };
        let code = if member.has_failed() {
            ncclResult_t::ncclRemoteError
        } else {
            ncclResult_t::ncclSuccess
        };
        // SAFETY: the C contract: NULL or writable.
        unsafe { store(out, "asyncError", code)? };
        failure = member.failure();
        Ok(())
    });
    // Whoever asks next what is behind the code gets it in full.
    if let Some(error) = failure {
        note(error);
    }
    result
}

/// The text of the calling thread's last error.
pub(super) unsafe extern "C" fn get_last_error(_comm: ncclComm_t) -> *const c_char {
    last_text()
}

pub(super) unsafe extern "C" fn query_properties(
    comm: ncclComm_t,
    out: *mut ncclCommProperties_t,
) -> ncclResult_t {
    entry("ncclCommQueryProperties", |scope: &Scope| {
        // SAFETY: the C contract of ncclCommQueryProperties.
        let member = unsafe { member(comm)? };
        scope.enter(&member);
        require(!out.is_null(), || Refusal::null(FailureClass::Return, "props"))?;
        // SAFETY: the C contract: the caller filled the structure's head.
        let given = unsafe { (&raw const (*out).size).read() };
        // SAFETY: as above.
        let magic = unsafe { (&raw const (*out).magic).read() };
        require(given >= size_of::<ncclCommProperties_t>() && magic == NCCL_API_MAGIC, || {
            Refusal::argument(
                FailureClass::Return,
                "props",
                "the structure starts as its initialiser makes it",
                format_args!("size >= {}", size_of::<ncclCommProperties_t>()),
                format_args!("size {given}, magic {magic:#x}"),
            )
        })?;
        let properties = ncclCommProperties_t {
            size: given,
            magic,
            version: VERSION as u32,
            rank: member.rank() as c_int,
            nRanks: member.size() as c_int,
            cudaDev: 0,
            nvmlDev: 0,
            deviceApiSupport: true,
            multimemSupport: false,
            // Ranks that are threads reach each other in every way that there is.
            ginType: ncclGinType_t::NCCL_GIN_TYPE_PROXY,
            nLsaTeams: 1,
            hostRmaSupport: true,
            railedGinType: ncclGinType_t::NCCL_GIN_TYPE_PROXY,
        };
        // SAFETY: the C contract: writable, and as large as its `size` says.
        unsafe { out.write(properties) };
        Ok(())
    })
}

/// All ranks are one team: every thread reaches every other's memory.
pub(super) unsafe extern "C" fn team_lsa(comm: ncclComm_t) -> ncclTeam_t {
    // SAFETY: the C contract of ncclTeamLsa.
    match unsafe { member(comm) } {
        Ok(member) => {
            ncclTeam_t { nRanks: member.size() as c_int, rank: member.rank() as c_int, stride: 1 }
        }
        Err(_) => ncclTeam_t::default(),
    }
}
