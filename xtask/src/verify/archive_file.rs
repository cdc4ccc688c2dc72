//! Archives, as `cargo xtask package` makes them.

use std::path::Path;

use anyhow::{Context, Result};
use xshell::Shell;

use super::report::{Problem, Report};
use super::staged_tree::{self, Extent};
use crate::archive;

/// Unpacks and looks at everything.
pub(crate) fn report(path: &Path, sh: &Shell) -> Result<Report> {
    let scratch = sh.create_temp_dir().context("no folder for temporary files")?;
    eprintln!("verify: unpacking {}", path.display());
    let shown = path.display().to_string();
    let root = match archive::unpack(path, scratch.path()) {
        Ok(root) => root,
        Err(error) => {
            let problem = Problem::new(shown, format!("{error:#}"));
            return Ok(Report::new(path, "archive", vec![problem]));
        }
    };
    let mut report = staged_tree::report(&root, Extent::Everything);
    report.problems.extend(missing(&root));
    Ok(report.of(path))
}

/// What an archive has beside a staged tree.
fn missing(root: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, what) in [
        (archive::PROGRAM, "the command line tool"),
        ("LICENSE", "the license of the crates"),
        ("licenses/NOTICE.md", "the notices of what is inside the tool"),
    ] {
        if !root.join(file).is_file() {
            problems.push(Problem::new(file, format!("an archive has {what}; package again")));
        }
    }
    let vendor = root.join("licenses").read_dir().into_iter().flatten().filter_map(|e| e.ok());
    if !vendor.into_iter().any(|e| e.file_name().to_string_lossy().starts_with("LICENSE")) {
        let message = "an archive has the license of the vendor's libraries; package again";
        problems.push(Problem::new("licenses/LICENSE*", message));
    }
    if root.join("nccl/lib").is_dir() && !root.join("nccl/licenses").is_dir() {
        let message = "an archive with NCCL has its license; package again";
        problems.push(Problem::new("nccl/licenses", message));
    }
    problems
}
