//! A copy of the checkout to build in, so that nothing in the checkout changes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::write;

/// What Git tracks, and what it would track: the files of a commit to be.
fn files(sh: &Shell) -> Result<Vec<PathBuf>> {
    let listed = cmd!(sh, "git ls-files -z --cached --others --exclude-standard")
        .quiet()
        .read()
        .context("git cannot list the files of the checkout; package from a Git checkout")?;
    Ok(listed.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

/// Copies the checkout's files into `to`.
pub(crate) fn copy(sh: &Shell, root: &Path, to: &Path) -> Result<()> {
    let files = files(sh)?;
    ensure!(
        files.iter().any(|file| file == Path::new("Cargo.lock")),
        "{}: Git does not track Cargo.lock, so a build would choose versions of its own",
        root.display()
    );
    for file in files {
        let (from, to) = (root.join(&file), to.join(&file));
        let Ok(meta) = from.symlink_metadata() else {
            continue; // tracked, and removed since
        };
        to.parent().map_or(Ok(()), write::folder)?;
        if meta.is_symlink() {
            let target = std::fs::read_link(&from)?;
            std::os::unix::fs::symlink(target, &to).map_err(|e| write::unwritable(&to, &e))?;
        } else {
            std::fs::copy(&from, &to).map_err(|error| write::unwritable(&to, &error))?;
        }
    }
    Ok(())
}

/// The time that everything in an archive has: `SOURCE_DATE_EPOCH`, else the last commit's.
pub(crate) fn time(sh: &Shell) -> Result<u64> {
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    if let Ok(value) = std::env::var(VARIABLE) {
        return value.trim().parse().with_context(|| {
            format!("{VARIABLE}={value}: expected seconds since 1970, or not to be set")
        });
    }
    let seconds = cmd!(sh, "git log -1 --format=%ct").quiet().read().context("git log")?;
    seconds.trim().parse().context("git log gave no time")
}
