//! All cases on the CPU backend, where ranks are threads.

use nccl_ext_cpu::CpuConfig;

use super::cases::{CASES, Case, RANKS};
use super::model::Model;
use super::rank::{self, Issue};
use super::report::{CaseReport, Report};
use crate::cpu_ranks;
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
    let works = case.works(model);
    let (works, skipped) = works.map_err(|error| Failure::call(&model.file, case.name, error))?;
    let victim = works.first().map(|work| work.destination.layout.mesh().start_rank());
    let outcomes = cpu_ranks::run(RANKS, &model.file, case.name, &CpuConfig::new(), |comm| {
        let corrupt = corrupt && victim == Some(comm.rank());
        rank::run(comm, &works, issue, corrupt)
    })?;
    Ok(CaseReport::new(case, issue, &works, skipped, &outcomes))
}
