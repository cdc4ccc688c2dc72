//! Tasks of this repository that need more than cargo: `cargo xtask help` lists them.

mod api_map;
mod archive;
mod book;
mod check_flag;
mod ci;
mod citations;
mod codegen;
mod files;
#[cfg(test)]
mod fixture;
mod functions;
mod modules;
mod native;
mod package;
mod rules;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use check_flag::CheckFlag;
use clap::Parser;
use xshell::Shell;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of this repository")]
enum Task {
    /// Generate the raw bindings from the vendor's headers.
    Codegen(codegen::Args),
    /// Write the page that maps every C item to its Rust counterpart.
    ApiMap(CheckFlag),
    /// Write the page that lists every rule of the crates.
    Rules(CheckFlag),
    /// List circles among the modules of every crate.
    Modules(CheckFlag),
    /// Look for links of the documents that lead nowhere.
    Book(CheckFlag),
    /// Look for citations of the specification that the book does not have.
    Citations(CheckFlag),
    /// Run every check that a change must pass.
    Ci,
    /// Lay out the vendor's libraries and headers in one folder.
    StageNative(native::stage::Args),
    /// Make an archive with libraries and tool, and the packages of the crates.
    Package(package::Args),
    /// Check a staged tree, an archive or a package.
    Verify(verify::Args),
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
        Task::ApiMap(args) => api_map::run(&args, &root),
        Task::Rules(args) => rules::run(&args, &sh, &root),
        Task::Modules(args) => modules::run(&args, &root),
        Task::Book(args) => book::run(&args, &sh, &root),
        Task::Citations(args) => citations::run(&args, &sh, &root),
        Task::Ci => ci::run(&sh, &root),
        Task::StageNative(args) => native::stage::run(&args, &sh, &root),
        Task::Package(args) => package::run(&args, &sh, &root),
        Task::Verify(args) => verify::run(&args, &sh),
    }
}

/// The workspace root: cargo says where this crate lies, and without cargo, where it was built.
fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_owned).context("xtask lies in no workspace")
}
