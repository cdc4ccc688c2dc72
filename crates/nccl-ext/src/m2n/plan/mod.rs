//! A reshard, planned: `nccl-ext m2n plan`.

mod arguments;
mod command;
mod facts;
mod json;
mod palette;
mod question;
mod side;
mod sketch;
mod svg;
mod table;

use std::fs;
use std::process::ExitCode;

use self::command::COMMAND;
pub use arguments::Arguments;
pub use facts::{PlanFacts, RankFacts, Role};
pub use question::Question;

use crate::failure::{Failure, InputError};
use crate::output;

/// Answers, on stdout and where asked for as a drawing. Gives exit code 1 when a limit of the
/// library refuses the call.
///
/// # Errors
/// [`Failure::Input`] when an argument is at fault, [`Failure::Output`] when stdout is.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let question = arguments.question()?;
    let facts = PlanFacts::new(&question);
    if let Some(path) = &arguments.svg {
        let drawing = svg::draw(&facts)?;
        fs::write(path, drawing).map_err(|error| {
            let rule = "the drawing is written to a file";
            InputError::new(COMMAND, "--svg", rule, "a path that can be written", error.to_string())
        })?;
    }
    output::print(&if arguments.json { facts.json() } else { facts.table() })?;
    Ok(if facts.refused.is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
