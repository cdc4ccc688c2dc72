//! All cases on the CPU backend, where ranks are threads.

use nccl_ext_core::Error;
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};

use super::cases::{CASES, Case, RANKS};
use super::model::Model;
use super::rank::{self, Issue};
use super::report::{CaseReport, Report};
use crate::failure::Failure;

/// # Errors
/// [`Failure::Call`] or [`Failure::Panic`] of the rank where it began.
pub(super) fn all(model: &Model, corrupt: bool) -> Result<Report, Failure> {
    let mut cases = Vec::new();
    for case in &CASES {
        for issue in [Issue::Calls, Issue::Group] {
            cases.push(one(model, case, issue, corrupt)?);
        }
    }
    Ok(Report::new(model, corrupt, cases))
}

fn one(model: &Model, case: &Case, issue: Issue, corrupt: bool) -> Result<CaseReport, Failure> {
    let failed = |error: Error| Failure::Call {
        file: model.file.clone(),
        pair: case.name,
        error: Box::new(cause(error)),
    };
    let (works, skipped) = case.works(model).map_err(failed)?;
    let victim = works.first().map(|work| work.destination.layout.mesh().start_rank());
    let results = run_ranks(RANKS, &CpuConfig::new(), |comm| {
        let corrupt = corrupt && victim == Some(comm.rank());
        rank::run(comm, &works, issue, corrupt)
    });
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(failure) => failures.push(failure),
        }
    }
    // Most ranks only know that another failed: take one that knows why.
    let echo = |failure: &RankFailure<Error>| {
        matches!(failure, RankFailure::Error(Error::PeerFailed { .. }))
    };
    failures.sort_by_key(echo);
    match failures.into_iter().next() {
        None => Ok(CaseReport::new(case, issue, &works, skipped, &outcomes)),
        Some(RankFailure::Error(error)) => Err(failed(error)),
        Some(RankFailure::Panic(message)) => Err(Failure::Panic { pair: case.name, message }),
    }
}

/// The error of the rank where it began.
fn cause(error: Error) -> Error {
    match error {
        Error::PeerFailed { error, .. } => cause(Error::clone(&error)),
        error => error,
    }
}
