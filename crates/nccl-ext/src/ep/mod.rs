//! Expert parallelism: run and proved ([`demo`]), or planned ([`plan`]).

pub mod demo;
pub mod plan;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// What there is to do without running anything.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Device memory that a model takes on each rank, before anything is allocated.
    ///
    /// Exit code 0: there are numbers; 1: the rules refuse each algorithm and layout asked for, and
    /// the plan names them; 2: an argument is at fault.
    Plan(plan::Arguments),
}

/// Does it.
///
/// # Errors
/// [`Failure`], by what is at fault.
pub fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Plan(arguments) => plan::run(arguments),
    }
}
