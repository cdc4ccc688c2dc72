//! The command line tool `nccl-ext`.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use nccl_ext::failure::Failure;
use nccl_ext::info::Info;
use nccl_ext::output;

/// Expert-parallel dispatch and combine over NVIDIA's nccl-extensions.
#[derive(Parser)]
#[command(name = "nccl-ext", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Dispatch tokens to their experts, combine the results, and compare every bit with an oracle.
    ///
    /// Runs on the CPU backend, where no GPU is needed, or on GPUs. Exit code 0: all verdicts pass;
    /// 1: one failed, or the run did; 2: the input or an argument is at fault.
    Demo(nccl_ext::ep::demo::Arguments),
    /// Expert parallelism without running it.
    #[command(subcommand)]
    Ep(nccl_ext::ep::Command),
    /// Resharding between two meshes of ranks.
    #[command(subcommand)]
    M2n(nccl_ext::m2n::Command),
    /// Every rule that calls are checked against before the native library sees them.
    Rules(nccl_ext::rules::Arguments),
    /// Versions of this tool, and which backends and libraries there are.
    Info(InfoArgs),
}

#[derive(Args)]
struct InfoArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(failure) => {
            output::complain(&failure.to_string());
            output::quote(failure.output());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(args) => nccl_ext::ep::demo::run(&args),
        Command::Ep(command) => nccl_ext::ep::run(&command),
        Command::M2n(command) => nccl_ext::m2n::run(&command),
        Command::Rules(arguments) => nccl_ext::rules::run(&arguments),
        Command::Info(args) => {
            let info = Info::collect();
            output::print(&if args.json { info.json() } else { info.text() })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
