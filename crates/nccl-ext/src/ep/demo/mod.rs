//! Dispatch, experts, combine: in every mode, and proved.
//!
//! ```text
//! cpu      ranks as threads of this process
//! native   ranks as processes, a GPU each: launched, met and read back by files
//! modes    what one rank does, whatever it runs on
//! verdict  oracle, counters and the CPU backend against what the ranks gave back
//! report   the facts; table  for people
//! ```

mod arguments;
mod cpu;
mod expected;
mod experts;
mod limits;
mod modes;
mod native;
mod options;
mod outcome;
mod rank;
mod received;
mod report;
mod speed;
mod table;
mod verdict;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::output;

pub use arguments::Arguments;

/// Runs what the arguments ask for, and reports. Gives exit code 1 when a verdict fails.
///
/// # Errors
/// [`Failure`] when an argument or the routing is at fault, libraries or GPUs are not there, or a
/// call fails. A result that is wrong is no error but a verdict in the report.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let load = arguments.load();
    let options = arguments.options()?;
    let routing = arguments.routing()?;
    let report = match load {
        None => cpu::run(&routing, &options)?,
        Some(load) => match arguments.rank_process(load)? {
            // The ranks are told the same, and their numbers.
            None => native::run(&routing, &options, &arguments.start(load)?)?,
            Some(rank) => {
                native::run_rank_process(&routing, &options, &rank)?;
                return Ok(ExitCode::SUCCESS);
            }
        },
    };
    output::print(&if arguments.json { report.json() } else { report.table() })?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
