//! Communicators without ranks behind them.

use core::ffi::{c_int, c_void};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use nccl_ext_core::raw::*;
use nccl_ext_core::{Backend, Comm, UniqueId};

use super::calls::{called, take_calls};

pub(super) const TABLE: NcclApi = NcclApi {
    ncclGetUniqueId: unique_id,
    ncclCommInitRank: init_rank,
    ncclCommCount: count,
    ncclCommUserRank: rank,
    ncclCommCuDevice: device,
    ncclCommFinalize: finalize,
    ncclCommDestroy: destroy,
    ncclCommAbort: abort,
    ncclCommQueryProperties: properties,
    ncclTeamLsa: team,
    ncclAllGather: all_gather,
    ncclMemAlloc: mem_alloc,
    ncclMemFree: mem_free,
    ..NcclApi::UNAVAILABLE
};

/// What other ranks send into an all-gather, where it is not what this one sends.
pub type Peers = fn(rank: usize, words: &mut [u64]);

thread_local! {
    static PEERS: Cell<Option<Peers>> = const { Cell::new(None) };
    static NETWORK: Cell<bool> = const { Cell::new(false) };
    static DOMAIN: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// What the other ranks of this thread's communicators send from now on, over the M2N stub.
pub fn set_peers(peers: Peers) {
    PEERS.set(Some(peers));
}

/// Whether new communicators of this thread have a network that kernels can use.
pub fn set_network(network: bool) {
    NETWORK.set(network);
}

/// Ranks of a domain of new communicators of this thread; all of them, unless set.
pub fn set_domain(ranks: Option<c_int>) {
    DOMAIN.set(ranks);
}

/// One rank of `ranks`. The calls that made it are not on record.
///
/// # Panics
/// If the backend has not the stubs of this module.
pub fn comm_on(backend: Backend, ranks: usize, rank: usize) -> Comm {
    let id = UniqueId::new(backend).unwrap();
    let comm = Comm::init_rank(backend, ranks, &id, rank).unwrap();
    take_calls();
    comm
}

/// A communicator handle is a number: which it is, its ranks and its rank.
const RANKS: usize = 0x1000;
const SERIAL: usize = RANKS * RANKS;

fn ranks_of(comm: ncclComm_t) -> usize {
    comm.addr() % SERIAL / RANKS
}

unsafe extern "C" fn init_rank(
    comm: *mut ncclComm_t,
    ranks: c_int,
    _: ncclUniqueId,
    rank: c_int,
) -> ncclResult_t {
    static NEXT_SERIAL: AtomicUsize = AtomicUsize::new(1);
    let serial = NEXT_SERIAL.fetch_add(1, Ordering::Relaxed);
    let number = serial * SERIAL + ranks as usize * RANKS + rank as usize;
    // SAFETY: the caller's out pointer.
    unsafe { *comm = core::ptr::without_provenance_mut(number) };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn unique_id(_: *mut ncclUniqueId) -> ncclResult_t {
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn count(comm: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = ranks_of(comm) as c_int };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn rank(comm: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = (comm.addr() % RANKS) as c_int };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn device(_: ncclComm_t, out: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 0 };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn finalize(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommFinalize")
}

unsafe extern "C" fn destroy(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommDestroy")
}

unsafe extern "C" fn abort(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommAbort")
}

unsafe extern "C" fn properties(comm: ncclComm_t, out: *mut ncclCommProperties_t) -> ncclResult_t {
    let gin = match NETWORK.get() {
        true => ncclGinType_t::NCCL_GIN_TYPE_PROXY,
        false => ncclGinType_t::NCCL_GIN_TYPE_NONE,
    };
    // SAFETY: the caller's out pointer, filled as far as its head.
    unsafe {
        (*out).nRanks = ranks_of(comm) as c_int;
        (*out).deviceApiSupport = true;
        (*out).hostRmaSupport = true;
        (*out).nLsaTeams = if DOMAIN.get().is_some() { 2 } else { 1 };
        (*out).ginType = gin;
        (*out).railedGinType = gin;
    }
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn team(comm: ncclComm_t) -> ncclTeam_t {
    let ranks = DOMAIN.get().unwrap_or(ranks_of(comm) as c_int);
    ncclTeam_t { nRanks: ranks, rank: 0, stride: 1 }
}

/// As if every rank had sent the same.
unsafe extern "C" fn all_gather(
    send: *const c_void,
    recv: *mut c_void,
    elements: usize,
    _: ncclDataType_t,
    comm: ncclComm_t,
    _: cudaStream_t,
) -> ncclResult_t {
    // SAFETY: the caller's buffers hold `elements` words each, times the ranks.
    unsafe { gather(send.cast(), recv.cast(), elements, comm, |_, _| ()) };
    ncclResult_t::ncclSuccess
}

/// As [`all_gather`], but for what [`set_peers`] says, of ranks that live in a process each, and
/// recorded.
pub(super) unsafe extern "C" fn all_gather_of_processes(
    send: *const c_void,
    recv: *mut c_void,
    elements: usize,
    _: ncclDataType_t,
    comm: ncclComm_t,
    _: cudaStream_t,
) -> ncclResult_t {
    let change = |rank: usize, words: &mut [u64]| {
        if let [process, _] = words {
            *process ^= rank as u64; // its number
        } else if let Some(peers) = PEERS.get() {
            peers(rank, words);
        }
    };
    // SAFETY: as above.
    unsafe { gather(send.cast(), recv.cast(), elements, comm, change) };
    called("ncclAllGather")
}

/// # Safety
/// `send` has `elements` words, and `recv` as many for each rank.
unsafe fn gather(
    send: *const u64, // the crates gather words only
    recv: *mut u64,
    elements: usize,
    comm: ncclComm_t,
    change: impl Fn(usize, &mut [u64]),
) {
    for rank in 0..ranks_of(comm) {
        // SAFETY: this function's contract.
        let words = unsafe {
            let row = recv.add(rank * elements);
            row.copy_from(send, elements);
            core::slice::from_raw_parts_mut(row, elements)
        };
        change(rank, words);
    }
}

/// As handle memory needs it.
const ALIGNMENT: usize = 256;

unsafe extern "C" fn mem_alloc(out: *mut *mut c_void, bytes: usize) -> ncclResult_t {
    let memory: &mut [u8] = Box::leak(vec![0; bytes + ALIGNMENT].into_boxed_slice());
    let ahead = memory.as_ptr().align_offset(ALIGNMENT);
    // SAFETY: the caller's out pointer; there are as many bytes more than asked for.
    unsafe { *out = memory.as_mut_ptr().add(ahead).cast() };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn mem_free(_: *mut c_void) -> ncclResult_t {
    ncclResult_t::ncclSuccess // leaks: the stub does not know the size
}
