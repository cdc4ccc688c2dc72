//! Raw calls of the CPU backend's tables.

#![allow(missing_docs, reason = "fields and constants repeat the C names")]

pub mod ep;
pub mod m2n;
mod stream;

pub use stream::{done, on_stream, stream};

use std::time::Duration;

use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Error};
use nccl_ext_cpu::{CpuConfig, backend, run_ranks};

use crate::worlds::{config, deferred_config};

pub const SUCCESS: ncclResult_t = ncclResult_t::ncclSuccess;
pub const INVALID_ARGUMENT: ncclResult_t = ncclResult_t::ncclInvalidArgument;
pub const INVALID_USAGE: ncclResult_t = ncclResult_t::ncclInvalidUsage;
pub const INTERNAL_ERROR: ncclResult_t = ncclResult_t::ncclInternalError;
pub const REMOTE_ERROR: ncclResult_t = ncclResult_t::ncclRemoteError;

pub const TIMED_OUT: ncclResult_t = ncclResult_t::ncclTimeout;

/// A time-out that no test waits for: a rank that gets it was not told of a failure.
pub fn patient() -> CpuConfig {
    CpuConfig::new().timeout(Duration::from_secs(60))
}

/// Runs `body` on every rank of a new world.
///
/// # Panics
/// If a rank fails; the message has what every rank failed with, since peers only hear of it.
#[track_caller]
pub fn every_rank<T: Send>(count: usize, body: impl Fn(&Comm) -> T + Sync) -> Vec<T> {
    ranks_of(&config(), count, |comm| body(comm))
}

/// Runs `body` twice on every rank of a new world: where calls are complete when they return, and
/// where their work runs later.
///
/// # Panics
/// As [`every_rank`].
#[track_caller]
pub fn both_ways<T: Send>(count: usize, body: impl Fn(&Comm) -> T + Sync) -> [Vec<T>; 2] {
    let now = every_rank(count, &body);
    let later = ranks_of(&deferred_config(), count, |comm| on_stream(comm, || body(comm)));
    [now, later]
}

#[track_caller]
fn ranks_of<T: Send>(config: &CpuConfig, count: usize, body: impl Fn(&Comm) -> T + Sync) -> Vec<T> {
    let results = run_ranks(count, config, |comm| Ok::<_, Error>(body(&comm)));
    let failures: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    results.into_iter().map(Result::unwrap).collect()
}

/// The error behind this thread's last call, as the safe crates read it; it is taken once.
pub fn take_error() -> Option<Error> {
    stream::take_failure().or_else(|| (backend().hooks().unwrap().take_error)())
}

/// What the rank that was refused, or whose peer was, says of `ncclInvalidUsage`.
///
/// # Panics
/// If the error is another one.
#[track_caller]
pub fn usage_detail(error: &Error) -> String {
    match error {
        Error::Native { code: INVALID_USAGE, detail, .. } => detail.clone(),
        Error::PeerFailed { error, .. } => usage_detail(error),
        other => panic!("{other}"),
    }
}
