//! Dispatch, experts, combine: on every pair of algorithm and layout, and proved.

mod experts;
mod ht_expert_major;
mod ht_flat;
mod limits;
mod ll_expert_major;
mod ll_rank_major;
mod pair;
mod rank;
mod report;
mod table;
mod verdict;

pub use pair::{PAIRS, Pair};
pub use rank::{Rank, Round};
pub use report::{PairReport, Report};

use nccl_ext_core::{Backend, Comm, Error};
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};

use crate::failure::Failure;
use crate::routing::Routing;

/// Rounds before the timed ones.
pub const WARM_UP: usize = 1;
/// Rounds whose times count.
pub const TIMED: usize = 5;

/// How the demo runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Inverts a byte that one rank received, between dispatch and combine: the verdict must fail.
    pub corrupt: bool,
}

/// Runs every pair on the CPU backend, with ranks as threads.
///
/// # Errors
/// [`Failure`] when the routing breaks a rule of the demo or of the API, or a call fails. A result
/// that is wrong is no error but a verdict in the report.
pub fn run(routing: &Routing, options: Options) -> Result<Report, Failure> {
    limits::check(routing)?;
    let pairs: Result<_, Failure> = PAIRS
        .iter()
        .map(|pair| {
            let rounds = run_pair(pair, routing, options)?;
            Ok(PairReport::new(pair, routing, &rounds))
        })
        .collect();
    Ok(Report::new(nccl_ext_cpu::backend(), routing, options, pairs?))
}

/// One pair on all ranks; gives the rounds of each.
fn run_pair(pair: &Pair, routing: &Routing, options: Options) -> Result<Vec<Vec<Round>>, Failure> {
    let results = run_ranks(routing.sizes.ranks, &CpuConfig::new(), |comm| {
        run_rank(comm, pair, routing, options)
    });
    let mut rounds = Vec::new();
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(rank) => rounds.push(rank),
            Err(failure) => failures.push(failure),
        }
    }
    // Most ranks only know that another failed: take one that knows why.
    let is_echo = |failure: &RankFailure<Error>| {
        matches!(failure, RankFailure::Error(Error::PeerFailed { .. }))
    };
    let at = failures.iter().position(|failure| !is_echo(failure)).unwrap_or(0);
    if failures.is_empty() {
        return Ok(rounds);
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

/// One rank's part in one pair, on whatever backend the communicator is of.
///
/// # Errors
/// What the calls report.
pub fn run_rank(
    comm: Comm,
    pair: &Pair,
    routing: &Routing,
    options: Options,
) -> Result<Vec<Round>, Error> {
    let rounds = {
        let corrupt = options.corrupt && routing.first_receiver() == Some(comm.rank());
        let rank = Rank::new(&comm, routing, WARM_UP + TIMED, corrupt)?;
        (pair.run)(&rank)?
    };
    comm.destroy()?;
    Ok(rounds)
}

/// What there is to say of a backend in one line.
fn backend_line(backend: Backend) -> String {
    let place = match backend.name() {
        "cpu" => "ranks are threads, memory is the host's".into(),
        _ => backend.memory().to_string(),
    };
    let libraries = backend.libraries().iter();
    let libraries: Vec<_> =
        libraries.map(|library| format!("{} {}", library.name, library.version)).collect();
    format!("{} ({place}), standing in for {}", backend.name(), libraries.join(" and "))
}
