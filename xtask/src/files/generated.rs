//! Pages of the book that a task writes and `ci` compares.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// A generated page.
pub(crate) struct Page {
    pub(crate) file: &'static str,
    /// The task that makes it, without `cargo xtask`.
    pub(crate) task: &'static str,
    /// What it is made of, for the message when it differs.
    pub(crate) of: &'static str,
}

impl Page {
    /// Writes the page; with `check`, fails where the file differs instead.
    pub(crate) fn write(&self, root: &Path, text: &str, check: bool) -> Result<()> {
        let Self { file, task, of } = self;
        let path = root.join(file);
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        if found == text {
            println!("{task}: {file} is up to date");
            return Ok(());
        }
        if check {
            let differs = |(expected, found): (&str, &str)| expected != found;
            let same = text.lines().zip(found.lines()).position(differs);
            let line = same.unwrap_or(text.lines().count().min(found.lines().count())) + 1;
            bail!(
                "{file}:{line}: differs from what {of} give; run `cargo xtask {task}` and commit the \
                 result"
            );
        }
        std::fs::write(&path, text).with_context(|| format!("writing {file}"))?;
        println!("{task}: wrote {file}");
        Ok(())
    }
}
