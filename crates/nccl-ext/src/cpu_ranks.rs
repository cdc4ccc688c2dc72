//! Ranks as threads of this process, on the CPU backend.

use nccl_ext_core::{Comm, Error};
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};

use crate::failure::Failure;

/// Runs `rank` on so many ranks, and gives what each of them gave. `file` is the input and `what`
/// the part of the demo that messages name.
///
/// # Errors
/// [`Failure::Call`] or [`Failure::Panic`], of the rank where it began.
pub(crate) fn run<T: Send>(
    ranks: usize,
    file: &str,
    what: &str,
    rank: impl Fn(Comm) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Failure> {
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    for result in run_ranks(ranks, &CpuConfig::new(), rank) {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(failure) => failures.push(failure),
        }
    }
    // Most ranks only know that another failed: take one that knows why.
    let is_echo = |failure: &RankFailure<Error>| {
        matches!(failure, RankFailure::Error(Error::PeerFailed { .. }))
    };
    failures.sort_by_key(is_echo);
    match failures.into_iter().next() {
        None => Ok(outcomes),
        Some(RankFailure::Error(error)) => Err(Failure::call(file, what, cause(error))),
        Some(RankFailure::Panic(message)) => Err(Failure::Panic { what: what.into(), message }),
    }
}

/// The error of the rank where it began.
fn cause(error: Error) -> Error {
    match error {
        Error::PeerFailed { error, .. } => cause(Error::clone(&error)),
        error => error,
    }
}
