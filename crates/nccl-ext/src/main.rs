//! The command line tool `nccl-ext`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use nccl_ext::demo::{self, Options};
use nccl_ext::failure::Failure;
use nccl_ext::info::Info;
use nccl_ext::output;
use nccl_ext::routing::Routing;

/// Expert-parallel dispatch and combine over NVIDIA's nccl-extensions.
#[derive(Parser)]
#[command(name = "nccl-ext", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Dispatch recorded tokens to their experts, combine the results, and compare every bit with
    /// an oracle.
    ///
    /// Runs on the CPU backend: no GPU is needed. Exit code 0: all verdicts pass; 1: one failed, or
    /// the run did; 2: the input or an argument is at fault.
    Demo(DemoArgs),
    /// Versions of this tool, and which backends and libraries there are.
    Info(InfoArgs),
}

#[derive(Args)]
struct DemoArgs {
    /// A safetensors file with `tokens`, `topk_idx` and `topk_weights`, and with tokens_per_rank,
    /// hidden, top_k, ranks and experts in its metadata. Default: recorded text inside the program.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// For tests of this tool: invert a received byte between dispatch and combine, which must fail
    /// the verdict.
    #[arg(long, hide = true)]
    corrupt: bool,
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
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(args) => {
            let routing = match &args.input {
                Some(path) => Routing::read(path)?,
                None => Routing::recorded()?,
            };
            let report = demo::run(&routing, Options { corrupt: args.corrupt })?;
            output::print(&if args.json { report.json() } else { report.table() })?;
            Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::from(1) })
        }
        Command::Info(args) => {
            let info = Info::collect();
            output::print(&if args.json { info.json() } else { info.text() })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
