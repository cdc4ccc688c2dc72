//! Ranks on the CPU backend, as threads of the test.

use std::fmt::Debug;
use std::time::Duration;

use nccl_ext_core::{Comm, Error, Reduction, Result, Stream};
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};

/// The stream of the CPU backend.
pub const STREAM: Stream<'static> = Stream::DEFAULT;

/// How a rank ended.
pub type Outcome<T> = Result<T, RankFailure<Error>>;

/// Ranks that wait for each other for 20 seconds at most.
pub fn config() -> CpuConfig {
    CpuConfig::new().timeout(Duration::from_secs(20))
}

/// The same ranks, whose work runs later.
pub fn deferred_config() -> CpuConfig {
    config().deferred(7)
}

/// Runs `body` on every rank and gives each rank's result.
pub fn outcomes<T: Send>(ranks: usize, body: impl Fn(Comm) -> Result<T> + Sync) -> Vec<Outcome<T>> {
    run_ranks(ranks, &config(), body)
}

/// Runs `body` on every rank.
///
/// # Panics
/// If one fails.
#[track_caller]
pub fn on_ranks<T: Send + Debug>(ranks: usize, body: impl Fn(Comm) -> Result<T> + Sync) -> Vec<T> {
    outcomes(ranks, body).into_iter().map(|result| result.unwrap()).collect()
}

/// Runs `body` on every rank and gives each rank's error.
///
/// # Panics
/// If one succeeds or panics.
#[track_caller]
pub fn errors(ranks: usize, body: impl Fn(Comm) -> Result<()> + Sync) -> Vec<Error> {
    outcomes(ranks, body).iter().map(|outcome| error_of(outcome).clone()).collect()
}

/// The error that a rank ended with.
///
/// # Panics
/// If it succeeded or panicked.
#[track_caller]
pub fn error_of<T>(outcome: &Outcome<T>) -> &Error {
    match outcome {
        Err(RankFailure::Error(error)) => error,
        Err(RankFailure::Panic(message)) => panic!("a panic, not an error: {message}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// The rank that failed, and in which words: what its peer ended with.
///
/// # Panics
/// If the error is another one.
#[track_caller]
pub fn failed_peer(error: &Error) -> (usize, String) {
    match error {
        Error::PeerFailed { rank, error } => (*rank, error.to_string()),
        other => panic!("PeerFailed, not {other:?}"),
    }
}

/// Waits until all ranks are here.
///
/// # Errors
/// What the sum over the ranks reports.
pub fn meet(comm: &Comm) -> Result<()> {
    let mut sum = [0_i32];
    comm.all_reduce(&[1_i32], &mut sum, Reduction::Sum, STREAM)
}
