//! What order between streams costs a call whose stream does not change:
//! `cargo bench -p nccl-ext-core --bench order`.
//!
//! Prints nanoseconds for one object (no more than 3) and for a call with as many objects as a call of
//! the extensions usually has, its communicator included (no more than 20). The best of several
//! rounds, so that a busy machine matters less.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::ffi::{c_int, c_uint, c_void};
use std::hint::black_box;
use std::time::Instant;

use nccl_ext_core::driver::{CuContext, CuDevice, CuResult, DriverApi};
use nccl_ext_core::raw::{NcclApi, cudaStream_t, ncclComm_t, ncclResult_t};
use nccl_ext_core::{Backend, Comm, LastUse, MemorySpace, OwnedStream, Usage, Use};

unsafe extern "C" fn zero(_: ncclComm_t, to: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's out pointer.
    unsafe { to.write(0) };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn abort(_: ncclComm_t) -> ncclResult_t {
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn retain(context: *mut CuContext, _: CuDevice) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { context.write(core::ptr::null_mut()) };
    CuResult::SUCCESS
}

unsafe extern "C" fn current(context: *mut CuContext) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { context.write(core::ptr::null_mut()) };
    CuResult::SUCCESS
}

unsafe extern "C" fn make(stream: *mut cudaStream_t, _: c_uint) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { stream.cast::<*mut c_void>().write(core::ptr::without_provenance_mut(64)) };
    CuResult::SUCCESS
}

/// A communicator whose memory is a device's.
fn comm() -> Comm {
    let nccl = NcclApi {
        ncclCommCount: zero,
        ncclCommUserRank: zero,
        ncclCommCuDevice: zero,
        ncclCommAbort: abort,
        ..NcclApi::UNAVAILABLE
    };
    let driver = DriverApi {
        primary_context_retain: Some(retain),
        context_get: Some(current),
        stream_create: Some(make),
        ..DriverApi::NONE
    };
    let builder = Backend::builder("bench", MemorySpace::Device).nccl(nccl).driver(driver);
    // SAFETY: the tables keep the contracts as far as this program calls them, and the communicator
    // is whatever the table makes of a pointer that it ignores.
    unsafe { Comm::from_raw(builder.build(), core::ptr::null_mut()) }.unwrap()
}

fn main() {
    // As a test (`cargo test --benches`) it only has to run.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 50 } else { 1 };
    let comm = comm();
    let stream = OwnedStream::new(&comm).unwrap();
    let stream = stream.stream();
    let objects: [LastUse; 7] = std::array::from_fn(|_| LastUse::new(comm.device()));

    let [a, b, c, d, e, f, g] = objects.each_ref().map(|object| Some(object as &dyn Usage));
    // As the tensors of a call have them.
    let tensors = [
        Use::write(a),
        Use::read(b),
        Use::read(c),
        Use::read(d),
        Use::write(e),
        Use::write(f),
        Use::write(g),
    ];
    let around = |tensors: &[Use<'_>]| {
        best(rounds, || Use::around(black_box(stream), black_box(tensors), || Ok(())).unwrap())
    };
    println!("an object: {:.2} ns", (around(&tensors) - around(&[])) / tensors.len() as f64);
    let call = best(rounds, || {
        comm.enqueue(black_box(stream), black_box(&tensors), || Ok(())).unwrap();
    });
    println!("a call with its communicator and seven objects: {call:.2} ns");
}

fn best(rounds: u32, call: impl Fn()) -> f64 {
    const CALLS: u32 = 500_000;
    let round = |_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..rounds).map(round).fold(f64::INFINITY, f64::min)
}
