//! Replacing parts of a folder all at once.
//!
//! New content is built in a folder of its own inside the target, so that putting it in place is a
//! series of renames; one that fails undoes those before it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const PREFIX: &str = ".staging-";

/// A folder `.staging-PID` in the target, removed on drop.
pub(crate) struct Staging {
    target: PathBuf,
    dir: PathBuf,
    /// Set when the folder holds the only copy of something.
    keep: bool,
}

impl Staging {
    pub(crate) fn new(target: &Path) -> Result<Self> {
        let dir = target.join(format!("{PREFIX}{}", std::process::id()));
        let staging = Self { target: target.to_owned(), dir, keep: false };
        for part in [staging.tree(), staging.old(), staging.download()] {
            std::fs::create_dir_all(&part)
                .with_context(|| format!("creating {}; is --prefix writable?", part.display()))?;
        }
        Ok(staging)
    }

    /// Where the new content is built.
    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.join("new")
    }

    /// Where downloads may lie until the end.
    pub(crate) fn download(&self) -> PathBuf {
        self.dir.join("download")
    }

    fn old(&self) -> PathBuf {
        self.dir.join("old")
    }

    /// Puts the top-level `entries` of the tree in place of the target's, and `last` after them.
    ///
    /// `last` leaves first and comes last, so a target that has it is complete.
    pub(crate) fn swap(mut self, entries: &[&str], last: &str) -> Result<()> {
        let (new, old) = (self.tree(), self.old());
        let leave = |name: &str| (self.target.join(name), old.join(name));
        let enter = |name: &str| (new.join(name), self.target.join(name));
        let moves = std::iter::once(leave(last))
            .chain(entries.iter().flat_map(|name| [leave(name), enter(name)]))
            .chain(std::iter::once(enter(last)));
        let mut done: Vec<(PathBuf, PathBuf)> = Vec::new();
        for (from, to) in moves {
            if from.symlink_metadata().is_err() {
                continue;
            }
            if let Err(error) = std::fs::rename(&from, &to) {
                let undone = done.iter().rev().all(|(from, to)| std::fs::rename(to, from).is_ok());
                if undone {
                    return Err(error).with_context(|| format!("moving to {}", to.display()));
                }
                self.keep = true;
                bail!(
                    "moving to {}: {error}; undoing that failed too: the previous files lie in {}",
                    to.display(),
                    old.display()
                );
            }
            done.push((from, to));
        }
        self.remove_stale();
        Ok(())
    }

    /// Removes what runs that were killed have left. Only now is the target known to be whole.
    fn remove_stale(&self) {
        let Ok(entries) = std::fs::read_dir(&self.target) else { return };
        for entry in entries.filter_map(|entry| entry.ok()) {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
                continue;
            };
            if !Path::new("/proc").join(pid).exists() {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_swap_replaces_the_named_entries_and_nothing_else() {
        let sh = xshell::Shell::new().unwrap();
        let dir = sh.create_temp_dir().unwrap();
        put(dir.path().join("a/old"), "");
        put(dir.path().join("other/kept"), "");
        let staging = Staging::new(dir.path()).unwrap();
        put(staging.tree().join("a/new"), "");
        put(staging.tree().join("m"), "");
        staging.swap(&["a", "absent"], "m").unwrap();
        let exists = |path: &str| dir.path().join(path).exists();
        assert!(exists("a/new") && exists("m") && exists("other/kept") && !exists("a/old"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "no staging folder is left");
    }

    #[test]
    fn a_swap_that_fails_leaves_everything_as_it_was() {
        let sh = xshell::Shell::new().unwrap();
        let dir = sh.create_temp_dir().unwrap();
        put(dir.path().join("a/old"), "");
        put(dir.path().join("m"), "old");
        let staging = Staging::new(dir.path()).unwrap();
        put(staging.tree().join("a/new"), "");
        put(staging.tree().join("b/c"), "");
        put(staging.tree().join("m"), "new");
        // A rename into a folder that is not there fails.
        let error = staging.swap(&["a", "b/c"], "m").unwrap_err();
        assert!(format!("{error:#}").contains("b/c"), "{error:#}");
        assert!(dir.path().join("a/old").exists() && !dir.path().join("a/new").exists());
        assert_eq!(std::fs::read_to_string(dir.path().join("m")).unwrap(), "old");
    }
}
