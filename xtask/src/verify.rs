//! `cargo xtask verify`: whether a staged tree, an archive or a `.crate` file is what it should be.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use xshell::Shell;

use crate::manifest::{Entry, Manifest};
use crate::{archive, krate, manifest, prefix};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A staged tree, an archive (`.tar.zst`) or a package (`.crate`).
    path: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What was looked at and what is wrong with it.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    path: PathBuf,
    kind: &'static str,
    ok: bool,
    pub(crate) problems: Vec<Problem>,
    files: usize,
    libraries: Vec<Library>,
}

/// Something wrong with a file.
#[derive(Serialize, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) file: String,
    pub(crate) message: String,
}

#[derive(Serialize, Debug)]
struct Library {
    file: String,
    version: String,
    cuda_major: u32,
    sha256: String,
    build_id: Option<String>,
}

impl Problem {
    pub(crate) fn new(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: file.into(), message: message.into() }
    }
}

impl Report {
    pub(crate) fn new(path: &Path, kind: &'static str, problems: Vec<Problem>) -> Self {
        let ok = problems.is_empty();
        Self { path: path.to_owned(), kind, ok, problems, files: 0, libraries: Vec::new() }
    }

    pub(crate) fn files(mut self, files: usize) -> Self {
        self.files = files;
        self
    }

    /// The same, of the archive that the tree was in.
    pub(crate) fn of(mut self, path: &Path) -> Self {
        self.path = path.to_owned();
        self.ok = self.problems.is_empty();
        self
    }

    /// Adds what a manifest says.
    pub(crate) fn manifest(mut self, manifest: &Manifest) -> Self {
        self.files = manifest.files.len();
        self.libraries = manifest.files.iter().filter_map(Library::new).collect();
        self
    }
}

impl Library {
    fn new(entry: &Entry) -> Option<Self> {
        let library = entry.library.as_ref()?;
        Some(Self {
            file: entry.path.clone(),
            version: library.version.clone(),
            cuda_major: library.cuda_major,
            sha256: entry.sha256.clone(),
            build_id: library.build_id.clone(),
        })
    }
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
        return Ok(prefix::report(path, prefix::Extent::Parts));
    }
    ensure!(path.is_file(), "{}: no such file or folder", path.display());
    if name.ends_with(archive::EXTENSION) {
        archive::report(path, sh)
    } else if name.ends_with(".crate") {
        Ok(krate::report(path))
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
