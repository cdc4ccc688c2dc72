//! Tasks of this repository that need more than cargo: `cargo xtask help` lists them.

mod arch;
mod bindings;
mod ci;
mod codegen;
mod elf;
mod functions;
mod libclang;
mod manifest;
mod source;
mod stage;
mod swap;
mod table;
mod tree;
mod wheel;

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
    /// Run every check that a change must pass.
    Ci,
    /// Lay out the vendor's libraries and headers from its Python wheels.
    StageNative(stage::Args),
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
        Task::Ci => ci::run(&sh, &root),
        Task::StageNative(args) => stage::run(&args, &sh, &root),
    }
}

/// The workspace root: cargo says where this crate lies, and without cargo, where it was built.
fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_owned).context("xtask lies in no workspace")
}
