//! `cargo xtask verify`: whether a staged tree, an archive or a `.crate` file is what it should be.

mod archive_file;
mod crate_file;
pub(crate) mod report;
pub(crate) mod staged_tree;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xshell::Shell;

use self::report::{Library, Problem, Report};
use crate::archive;
use crate::native::manifest;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A staged tree, an archive (`.tar.zst`) or a package (`.crate`).
    path: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, sh: &Shell) -> Result<()> {
    let report = report(&args.path, sh)?;
    if args.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::io::stdout().write_all(text.as_bytes()).context("writing the report")?;
    } else {
        for Problem { file, message } in &report.problems {
            println!("  {file}: {message}");
        }
        for Library { file, version, cuda_major, .. } in &report.libraries {
            println!("  {file} {version} (CUDA {cuda_major})");
        }
        let verdict = if report.ok { "good" } else { "not good" };
        println!("verify: {} of {} files: {verdict}", report.kind, report.files);
    }
    let count = report.problems.len();
    ensure!(report.ok, "{}: {count} problem(s), listed above", args.path.display());
    Ok(())
}

/// Looks at a product of any kind.
pub(crate) fn report(path: &Path, sh: &Shell) -> Result<Report> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if path.is_dir() {
        return Ok(staged_tree::report(path, staged_tree::Extent::Parts));
    }
    ensure!(path.is_file(), "{}: no such file or folder", path.display());
    if name.ends_with(archive::EXTENSION) {
        archive_file::report(path, sh)
    } else if name.ends_with(".crate") {
        Ok(crate_file::report(path))
    } else {
        bail!(
            "{}: expected a staged tree (a folder with {}), an archive ({}) or a package (.crate)",
            path.display(),
            manifest::FILE,
            archive::EXTENSION
        )
    }
}

#[cfg(test)]
mod tests;
