//! The CPU backend: ranks are threads of this process.

use nccl_ext_core::Error;
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};

use super::outcome::Outcome;
use super::pair::Pair;
use super::{Options, run_rank};
use crate::failure::Failure;
use crate::routing::Routing;

/// One pair on all ranks; gives what each saw.
pub(super) fn run_pair(
    pair: &'static Pair,
    routing: &Routing,
    options: &Options,
) -> Result<Vec<Outcome>, Failure> {
    let results = run_ranks(routing.sizes.ranks, &CpuConfig::new(), |comm| {
        run_rank(comm, pair, routing, options)
    });
    let mut outcomes = Vec::new();
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(failure) => failures.push(failure),
        }
    }
    // Most ranks only know that another failed: take one that knows why.
    let is_echo = |failure: &RankFailure<Error>| {
        matches!(failure, RankFailure::Error(Error::PeerFailed { .. }))
    };
    let at = failures.iter().position(|failure| !is_echo(failure)).unwrap_or(0);
    if failures.is_empty() {
        return Ok(outcomes);
    }
    Err(match failures.swap_remove(at) {
        RankFailure::Error(error) => Failure::Call {
            file: routing.name.clone(),
            pair: pair.name,
            error: Box::new(cause(error)),
        },
        RankFailure::Panic(message) => Failure::Panic { pair: pair.name, message },
    })
}

/// The error of the rank where it began.
fn cause(error: Error) -> Error {
    match error {
        Error::PeerFailed { error, .. } => cause(Error::clone(&error)),
        error => error,
    }
}
