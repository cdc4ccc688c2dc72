//! A copy of the checkout to build in, so that nothing in the checkout changes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::files::write;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Bench, snapshot};

    #[test]
    fn what_git_tracks_or_would_track_is_copied_and_the_checkout_stays_as_it_is() {
        let bench = Bench::new();
        let root = bench.path("checkout");
        for (file, text) in [
            ("Cargo.lock", "lock"),
            ("src/main.rs", "code"),
            ("removed.rs", "code"),
            (".gitignore", "/target\n"),
            ("target/debug/large", "build"),
        ] {
            write::file(&root.join(file), text.as_bytes()).unwrap();
        }
        std::os::unix::fs::symlink("src/main.rs", root.join("link")).unwrap();
        let sh = &bench.sh;
        sh.change_dir(&root);
        cmd!(sh, "git init --quiet").quiet().run().unwrap();
        cmd!(sh, "git add --all").quiet().run().unwrap();
        write::file(&root.join("new.rs"), b"untracked").unwrap();
        std::fs::remove_file(root.join("removed.rs")).unwrap();
        let before = snapshot(&root);
        copy(sh, &root, &bench.path("copy")).unwrap();
        assert_eq!(snapshot(&root), before);
        let copied: Vec<String> = snapshot(&bench.path("copy")).into_keys().collect();
        assert_eq!(copied, [".gitignore", "Cargo.lock", "link", "new.rs", "src/main.rs"]);
    }
}
