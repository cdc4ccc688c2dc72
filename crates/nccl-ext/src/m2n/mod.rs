//! Resharding between two meshes of ranks, planned and run: `nccl-ext m2n`.

pub mod demo;
pub mod plan;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// What there is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What a reshard between two layouts moves, and whether the library takes it. Nothing runs.
    ///
    /// Exit code 0: the library takes the call; 1: a limit of the library refuses it, and the plan
    /// names the rule; 2: an argument is at fault, or the layouts are no two sides of one tensor.
    Plan(plan::Arguments),
    /// Reshard the tensors of a file between ranks on the CPU backend, and compare every byte.
    ///
    /// Exit code 0: all verdicts pass; 1: one failed, or the run did; 2: the input or an argument
    /// is at fault.
    Demo(demo::Arguments),
}

/// Does it.
///
/// # Errors
/// [`Failure`], by what is at fault.
pub fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Plan(arguments) => plan::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
    }
}
