//! A folder as a source of files: an upstream build tree, or a staged one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::files::{self, write};

pub(crate) struct Folder {
    root: PathBuf,
    /// How messages and the manifest name it: without the folders above it.
    pub(crate) name: String,
}

impl Folder {
    pub(crate) fn open(kind: &str, root: &Path) -> Result<Self> {
        ensure!(
            root.is_dir(),
            "{}: no such folder; check the path after `{kind}:`",
            root.display()
        );
        let root = root.canonicalize().with_context(|| format!("{}", root.display()))?;
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self { name: format!("{kind}:{name}"), root })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    /// Names of the files whose path begins so, relative to the folder. Symbolic links are among
    /// them: [`real`](Self::real) follows them.
    pub(crate) fn files_below(&self, start: &str) -> Vec<String> {
        let mut found = Vec::new();
        let folder = start.rsplit_once('/').map_or("", |(folder, _)| folder);
        files::walk(&self.root, Path::new(folder), &mut found);
        found.retain(|file| file.starts_with(start));
        found.sort();
        found
    }

    /// The name of the file that a link leads to, which must lie in the folder too.
    pub(crate) fn real(&self, file: &str) -> Result<String> {
        let path = self.root.join(file);
        let real = path.canonicalize().with_context(|| {
            format!("{}: a symbolic link that leads nowhere; build the tree again", path.display())
        })?;
        match real.strip_prefix(&self.root).ok().and_then(Path::to_str) {
            Some(inside) => Ok(inside.to_owned()),
            None => bail!(
                "{}: leads to {}, outside of {}; name the tree that holds the file itself",
                path.display(),
                real.display(),
                self.root.display()
            ),
        }
    }

    /// Copies a file, which must be a regular one.
    pub(crate) fn extract(&self, file: &str, to: &Path) -> Result<()> {
        let path = self.root.join(file);
        let meta = path.symlink_metadata().with_context(|| format!("{}", path.display()))?;
        ensure!(
            meta.is_file(),
            "{}: expected a regular file, found {}; a staged tree holds no links, so stage it \
             again from what they lead to",
            path.display(),
            if meta.is_symlink() { "a symbolic link" } else { "something else" }
        );
        let unreadable = || format!("{}: cannot be read", path.display());
        let mut from = std::fs::File::open(&path).with_context(unreadable)?;
        write::copy(&mut from, meta.len(), to, unreadable)?;
        Ok(())
    }
}
