//! Tasks of this repository that need more than cargo: `cargo xtask help` lists them.

mod bindings;
mod codegen;
mod functions;
mod libclang;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use xshell::Shell;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of this repository")]
enum Task {
    /// Generate the raw bindings from the vendor's headers.
    Codegen(codegen::Args),
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // One line for each cause: a backtrace of xtask helps nobody who runs it.
        Err(error) => {
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    let sh = Shell::new().context("no current directory")?;
    let root = root()?;
    match task {
        Task::Codegen(args) => codegen::run(&args, &sh, &root),
    }
}

/// The workspace root: cargo says where this crate lies, and without cargo, where it was built.
fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_owned).context("xtask lies in no workspace")
}
