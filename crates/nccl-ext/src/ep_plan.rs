//! Device memory of a model, planned: `nccl-ext ep plan`.

mod arguments;
mod json;
mod models;
mod question;
mod report;
pub(crate) mod size;
mod table;

use std::process::ExitCode;

pub use arguments::Arguments;
pub use models::{MODELS, Shape};
pub use question::{PAIRS, Pair, Question};
pub use report::{Asked, HtReceive, Outcome, PairPlan, Refusal, Report};

use crate::failure::{Failure, InputError};
use crate::output;

/// What messages name as their origin, where other commands name a file.
const COMMAND: &str = "ep plan";

/// Answers, on stdout. Gives exit code 0 when there are numbers for at least one pair of algorithm
/// and layout, and 1 when each of those asked for is refused.
///
/// # Errors
/// [`Failure::Input`] when an argument is at fault, [`Failure::Output`] when stdout is.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let question = arguments.question()?;
    let report = Report::new(&question)?;
    output::print(&if arguments.json { report.json() } else { report.table() })?;
    let planned = report.pairs.iter().any(|pair| pair.memory().is_some());
    Ok(if planned { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn refuse(
    item: &'static str,
    rule: &'static str,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> InputError {
    InputError { file: COMMAND.into(), item, rule, expected: expected.into(), found: found.into() }
}
