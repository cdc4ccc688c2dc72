//! The command line tool `nccl-ext`.

mod demo_args;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use demo_args::DemoArgs;
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
    Demo(DemoArgs),
    /// Expert parallelism without running it.
    #[command(subcommand)]
    Ep(EpCommand),
    /// Resharding between two meshes of ranks.
    #[command(subcommand)]
    M2n(nccl_ext::m2n::Command),
    /// Versions of this tool, and which backends and libraries there are.
    Info(InfoArgs),
}

#[derive(Subcommand)]
enum EpCommand {
    /// Device memory that a model takes on each rank, before anything is allocated.
    ///
    /// Exit code 0: there are numbers; 1: the rules refuse each algorithm and layout asked for, and
    /// the plan names them; 2: an argument is at fault.
    Plan(nccl_ext::ep_plan::Arguments),
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
        Command::Demo(args) => args.run(),
        Command::Ep(EpCommand::Plan(args)) => nccl_ext::ep_plan::run(&args),
        Command::M2n(command) => nccl_ext::m2n::run(&command),
        Command::Info(args) => {
            let info = Info::collect();
            output::print(&if args.json { info.json() } else { info.text() })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
