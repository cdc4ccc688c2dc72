//! Device memory of a model, planned: `nccl-ext ep plan`.

mod arguments;
mod command;
mod json;
mod models;
mod question;
mod report;
mod table;

use std::process::ExitCode;

pub use arguments::Arguments;
pub use models::{MODELS, Shape};
pub use question::Question;
pub use report::{Asked, HtReceive, ModePlan, Outcome, Report};

use crate::failure::Failure;
use crate::output;

/// Answers, on stdout. Gives exit code 0 when there are numbers for at least one pair of algorithm
/// and layout, and 1 when each of those asked for is refused.
///
/// # Errors
/// [`Failure::Input`] when an argument is at fault, [`Failure::Output`] when stdout is.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let question = arguments.question()?;
    let report = Report::new(&question)?;
    output::print(&if arguments.json { report.json() } else { report.table() })?;
    let planned = report.modes.iter().any(|plan| plan.memory().is_some());
    Ok(if planned { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
