//! A backend made of stub tables: every call succeeds, does nothing and is counted for the calling
//! thread. With it a test sees what reaches the native library, and what does not.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use core::ffi::{c_char, c_int, c_void};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use nccl_ext_core::driver::{CuContext, CuResult, DriverApi};
use nccl_ext_core::raw::*;
use nccl_ext_core::{Backend, LibraryInfo, Version};
use nccl_m2n::{Comm, MemorySpace, UniqueId};
use nccl_m2n_sys::*;

/// What other ranks send into an all-gather, where it is not what this one sends.
pub type Peers = fn(rank: usize, words: &mut [u64]);

thread_local! {
    static CALLS: RefCell<Vec<&'static str>> = RefCell::new(Vec::with_capacity(1024));
    static NEXT: Cell<Option<(&'static str, ncclResult_t)>> = const { Cell::new(None) };
    static PEERS: Cell<Option<Peers>> = const { Cell::new(None) };
    static PASSED: Cell<[bool; 2]> = const { Cell::new([false; 2]) };
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
    static NETWORK: Cell<bool> = const { Cell::new(false) };
    static DOMAIN: Cell<Option<c_int>> = const { Cell::new(None) };
}

fn called(name: &'static str) -> ncclResult_t {
    CALLS.with_borrow_mut(|calls| calls.push(name));
    match NEXT.take() {
        Some((failing, code)) if failing == name => code,
        other => {
            NEXT.set(other);
            ncclResult_t::ncclSuccess
        }
    }
}

/// The calls of this thread since the last look, communicator bookkeeping aside.
pub fn take_calls() -> Vec<&'static str> {
    CALLS.with_borrow_mut(|calls| {
        let taken = calls.clone();
        calls.clear(); // keeps the capacity: pushing must not allocate
        taken
    })
}

/// The next call of that name on this thread returns `code`.
pub fn fail_next(name: &'static str, code: ncclResult_t) {
    NEXT.set(Some((name, code)));
}

/// What the other ranks of this thread's communicators send from now on.
pub fn set_peers(peers: Peers) {
    PEERS.set(Some(peers));
}

/// Whether the last reshard of this thread passed memory for source and destination.
pub fn passed() -> [bool; 2] {
    PASSED.get()
}

/// Whether this thread's streams are being captured.
pub fn set_capturing(capturing: bool) {
    CAPTURING.set(capturing);
}

/// Whether new communicators of this thread have a network that kernels can use.
pub fn set_network(network: bool) {
    NETWORK.set(network);
}

/// Ranks of a domain of new communicators of this thread; all of them, unless set.
pub fn set_domain(ranks: Option<c_int>) {
    DOMAIN.set(ranks);
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

unsafe extern "C" fn finalize_comm(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommFinalize")
}

unsafe extern "C" fn destroy_comm(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommDestroy")
}

unsafe extern "C" fn abort_comm(_: ncclComm_t) -> ncclResult_t {
    called("ncclCommAbort")
}

unsafe extern "C" fn properties(comm: ncclComm_t, out: *mut ncclCommProperties_t) -> ncclResult_t {
    let network = NETWORK.get();
    let gin = if network {
        ncclGinType_t::NCCL_GIN_TYPE_PROXY
    } else {
        ncclGinType_t::NCCL_GIN_TYPE_NONE
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

/// As if every rank had sent the same, but for what [`set_peers`] says. Each lives in a process of
/// its own.
unsafe extern "C" fn all_gather(
    send: *const c_void,
    recv: *mut c_void,
    elements: usize,
    _: ncclDataType_t,
    comm: ncclComm_t,
    _: cudaStream_t,
) -> ncclResult_t {
    for i in 0..ranks_of(comm) {
        // SAFETY: the caller's buffers hold `elements` words each, times the ranks.
        let words = unsafe {
            let row = recv.cast::<u64>().add(i * elements);
            row.copy_from(send.cast(), elements);
            core::slice::from_raw_parts_mut(row, elements)
        };
        if elements == 2 {
            words[0] ^= i as u64; // the number of its process
        } else if let Some(peers) = PEERS.get() {
            peers(i, words);
        }
    }
    called("ncclAllGather")
}

unsafe extern "C" fn mem_alloc(out: *mut *mut c_void, bytes: usize) -> ncclResult_t {
    let memory = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
    // SAFETY: the caller's out pointer.
    unsafe { *out = Box::into_raw(memory).cast() };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn mem_free(_: *mut c_void) -> ncclResult_t {
    ncclResult_t::ncclSuccess // leaks: the stub does not know the size
}

unsafe extern "C" fn driver_version(out: *mut c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 12_050 };
    CuResult::SUCCESS
}

unsafe extern "C" fn context_get(out: *mut CuContext) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = core::ptr::without_provenance_mut(16) };
    CuResult::SUCCESS
}

unsafe extern "C" fn context_retain(out: *mut CuContext, _: c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = core::ptr::without_provenance_mut(16) };
    CuResult::SUCCESS
}

unsafe extern "C" fn context_set(_: CuContext) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn synchronize(_: cudaStream_t) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn context_synchronize() -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn is_capturing(_: cudaStream_t, out: *mut c_int) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = CAPTURING.get().into() };
    CuResult::SUCCESS
}

unsafe extern "C" fn copy_in(
    to: u64,
    from: *const c_void,
    bytes: usize,
    _: cudaStream_t,
) -> CuResult {
    // SAFETY: the caller's ranges.
    unsafe { (to as *mut u8).copy_from(from.cast(), bytes) };
    CuResult::SUCCESS
}

unsafe extern "C" fn copy_out(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    _: cudaStream_t,
) -> CuResult {
    // SAFETY: the caller's ranges.
    unsafe { to.cast::<u8>().copy_from(from as *const u8, bytes) };
    CuResult::SUCCESS
}

unsafe extern "C" fn fill(to: u64, value: u8, bytes: usize, _: cudaStream_t) -> CuResult {
    // SAFETY: the caller's range.
    unsafe { (to as *mut u8).write_bytes(value, bytes) };
    CuResult::SUCCESS
}

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

/// A backend of stubs whose tensors live in `memory`.
pub fn backend(memory: MemorySpace) -> Backend {
    let nccl = NcclApi {
        ncclGetUniqueId: unique_id,
        ncclCommInitRank: init_rank,
        ncclCommCount: count,
        ncclCommUserRank: rank,
        ncclCommCuDevice: device,
        ncclCommFinalize: finalize_comm,
        ncclCommDestroy: destroy_comm,
        ncclCommAbort: abort_comm,
        ncclCommQueryProperties: properties,
        ncclTeamLsa: team,
        ncclAllGather: all_gather,
        ncclMemAlloc: mem_alloc,
        ncclMemFree: mem_free,
        ..NcclApi::UNAVAILABLE
    };
    let driver = DriverApi {
        version: Some(driver_version),
        context_get: Some(context_get),
        context_set: Some(context_set),
        primary_context_retain: Some(context_retain),
        context_synchronize: Some(context_synchronize),
        stream_synchronize: Some(synchronize),
        stream_is_capturing: Some(is_capturing),
        copy_to_device: Some(copy_in),
        copy_to_host: Some(copy_out),
        fill: Some(fill),
        ..DriverApi::NONE
    };
    let table = M2nApi {
        ncclM2nInit: init,
        ncclM2nFinalize: finalize,
        ncclM2nGetLastError: last_error,
        ncclM2nGroupStart: group_start,
        ncclM2nGroupEnd: group_end,
        ncclM2nGroupAbort: group_abort,
        ncclReshard: reshard,
        ncclReshardWithWindow: reshard_with_window,
    };
    let version = Version::new(2, 30, 7);
    let info = LibraryInfo::new("libnccl.so.2", version);
    let builder = Backend::builder("stub", memory).nccl(nccl).driver(driver).library(info);
    // SAFETY: the stubs keep to the contracts, as far as they do anything.
    unsafe { from_table(builder, table, NEEDS).build() }
}

/// Rank 0 of `ranks` on a fresh stub backend with host tensors.
pub fn comm(ranks: usize) -> Comm {
    comm_on(backend(MemorySpace::Host), ranks, 0)
}

/// One rank of `ranks`.
pub fn comm_on(backend: Backend, ranks: usize, rank: usize) -> Comm {
    let id = UniqueId::new(backend).unwrap();
    let comm = Comm::init_rank(backend, ranks, &id, rank).unwrap();
    take_calls();
    comm
}
