//! Replacing parts of a folder all at once.
//!
//! New content is built in a folder of its own inside the target, so that putting it in place is a
//! series of renames. One that fails undoes those before it; a run that is killed between two of
//! them leaves a journal, by which the next run undoes them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::files::write;

const PREFIX: &str = ".staging-";
const JOURNAL: &str = "journal";

/// A folder `.staging-PID` in the target, removed on drop.
pub(crate) struct Staging {
    target: PathBuf,
    dir: PathBuf,
    /// Set when the folder holds the only copy of something.
    keep: bool,
}

/// An entry leaves the target for `old`, or comes into it from `new`.
struct Move {
    from: PathBuf,
    to: PathBuf,
}

impl Staging {
    pub(crate) fn new(target: &Path) -> Result<Self> {
        recover(target)?;
        let dir = target.join(format!("{PREFIX}{}", std::process::id()));
        let staging = Self { target: target.to_owned(), dir, keep: false };
        for part in [staging.tree(), staging.old(), staging.download()] {
            write::folder(&part)?;
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
        let moves = self.moves(entries, last);
        let journal = self.dir.join(JOURNAL);
        let lines: String = moves.iter().map(|step| step.line(&self.target)).collect();
        write::file(&journal, lines.as_bytes())?;
        for (done, step) in moves.iter().enumerate() {
            let Err(error) = step.make() else { continue };
            if moves.iter().take(done).rev().all(|step| step.undo().is_ok()) {
                return Err(error).with_context(|| format!("moving to {}", step.to.display()));
            }
            self.keep = true;
            bail!(
                "moving to {}: {error}; undoing that failed too: the previous files lie in {}",
                step.to.display(),
                self.old().display()
            );
        }
        // From here on the new content counts.
        std::fs::remove_file(&journal).with_context(|| format!("{}", journal.display()))
    }

    /// Every rename, in order; none for what is not there.
    fn moves(&self, entries: &[&str], last: &str) -> Vec<Move> {
        let (new, old) = (self.tree(), self.old());
        let leave = |name: &str| Move { from: self.target.join(name), to: old.join(name) };
        let enter = |name: &str| Move { from: new.join(name), to: self.target.join(name) };
        let moves = std::iter::once(leave(last))
            .chain(entries.iter().flat_map(|name| [leave(name), enter(name)]))
            .chain(std::iter::once(enter(last)));
        moves.filter(|step| step.from.symlink_metadata().is_ok()).collect()
    }
}

impl Move {
    fn make(&self) -> std::io::Result<()> {
        std::fs::rename(&self.from, &self.to)
    }

    fn undo(&self) -> std::io::Result<()> {
        std::fs::rename(&self.to, &self.from)
    }

    /// Both paths relative to the target: it may be moved before the journal is read.
    fn line(&self, target: &Path) -> String {
        let [from, to] = [&self.from, &self.to]
            .map(|path| path.strip_prefix(target).unwrap_or(path).display().to_string());
        format!("{from}\t{to}\n")
    }

    fn parse(line: &str, target: &Path) -> Option<Self> {
        let (from, to) = line.split_once('\t')?;
        Some(Self { from: target.join(from), to: target.join(to) })
    }

    /// Whether it was made, as far as the file system tells.
    fn was_made(&self) -> bool {
        self.from.symlink_metadata().is_err() && self.to.symlink_metadata().is_ok()
    }
}

/// Undoes and removes what runs that were killed have left.
fn recover(target: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(target) else { return Ok(()) };
    for entry in entries.filter_map(|entry| entry.ok()) {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if is_alive(pid) {
            bail!(
                "{}: another run (process {pid}) stages into this folder; wait for it, or end it \
                 and remove that folder",
                entry.path().display()
            );
        }
        if let Ok(journal) = std::fs::read_to_string(entry.path().join(JOURNAL)) {
            let moves: Vec<Move> =
                journal.lines().filter_map(|line| Move::parse(line, target)).collect();
            for step in moves.iter().rev().filter(|step| step.was_made()) {
                step.undo().with_context(|| {
                    format!(
                        "{}: a run was killed while it put files in place, and undoing that failed \
                         at {}; move it to {} by hand",
                        entry.path().display(),
                        step.to.display(),
                        step.from.display()
                    )
                })?;
            }
        }
        let _ = std::fs::remove_dir_all(entry.path());
    }
    Ok(())
}

/// Whether a process of that number stages. Another program may have the number by now.
fn is_alive(pid: &str) -> bool {
    let own = std::process::id().to_string();
    let name = std::fs::read_to_string(Path::new("/proc").join(pid).join("comm"));
    pid != own && name.is_ok_and(|name| name.starts_with("xtask"))
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

    /// Kills the run before each of its renames, one after the other.
    #[test]
    fn l14_a_run_that_is_killed_while_it_swaps_is_undone_by_the_next() {
        let sh = xshell::Shell::new().unwrap();
        for made in 0..=5 {
            let dir = sh.create_temp_dir().unwrap();
            put(dir.path().join("a/old"), "old");
            put(dir.path().join("m"), "old");
            // A process number that is above every real one.
            let staging = Staging {
                target: dir.path().to_owned(),
                dir: dir.path().join(".staging-99999999"),
                keep: true,
            };
            put(staging.tree().join("a/new"), "");
            put(staging.tree().join("b/new"), "");
            put(staging.tree().join("m"), "new");
            std::fs::create_dir_all(staging.old()).unwrap();
            let moves = staging.moves(&["a", "b"], "m");
            assert_eq!(moves.len(), 5);
            let lines: String = moves.iter().map(|step| step.line(&staging.target)).collect();
            put(staging.dir.join(JOURNAL), &lines);
            moves.iter().take(made).for_each(|step| step.make().unwrap());

            recover(dir.path()).unwrap();
            assert_eq!(std::fs::read_to_string(dir.path().join("a/old")).unwrap(), "old");
            assert_eq!(std::fs::read_to_string(dir.path().join("m")).unwrap(), "old");
            let left = std::fs::read_dir(dir.path()).unwrap().count();
            assert_eq!(left, 2, "after {made} renames");
        }
    }
}
