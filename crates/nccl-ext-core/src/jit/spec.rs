//! Where an extension looks, in its own names.

use std::path::{Path, PathBuf};

use crate::env_value::Lookup;
use crate::error::{JitVariable, Result};

/// Where an extension looks for its compiler and for the headers of its kernels. Lists are in the
/// order in which it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitSpec {
    /// The library, as errors name it.
    pub library: &'static str,
    /// The variables that name the compiler; the first is the extension's own.
    pub nvcc: &'static [&'static str],
    /// The variables that name a CUDA toolkit.
    pub toolkits: &'static [&'static str],
    /// The extension's own headers.
    pub library_headers: HeaderFolder,
    /// NCCL's headers.
    pub nccl_headers: HeaderFolder,
    /// CUDA's headers.
    pub cuda_headers: HeaderFolder,
}

impl JitSpec {
    /// The variable to name the compiler with.
    pub(crate) fn nvcc_variable(&self) -> &'static str {
        self.nvcc.first().copied().unwrap_or("PATH")
    }
}

/// A folder of headers: how an extension finds it, and when it will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderFolder {
    /// The variable that names the folder itself.
    pub direct: &'static str,
    /// The variables that name the folder above `below`; the first that is set counts.
    pub homes: &'static [&'static str],
    /// Where it lies below those.
    pub below: &'static str,
    /// What must be in it.
    pub files: &'static [&'static str],
}

impl HeaderFolder {
    /// The first file that a folder lacks.
    pub(super) fn lacks(&self, folder: &Path) -> Option<&'static str> {
        self.files.iter().copied().find(|file| !folder.join(file).exists())
    }

    /// What the library would use, or the variable to set. `fitting` are values for the first of
    /// `homes` that may do.
    pub(super) fn find(
        &self,
        lookup: Lookup<'_>,
        fitting: &[PathBuf],
    ) -> Result<PathBuf, JitVariable> {
        let set = lookup(self.direct).map(|value| (self.direct, PathBuf::from(value)));
        let set = set.or_else(|| {
            let home = self.homes.iter().find_map(|name| Some((*name, lookup(name)?)))?;
            Some((home.0, Path::new(&home.1).join(self.below)))
        });
        // A direct variable leads to the headers themselves, the others to a folder above.
        let fit = |name| {
            let good = |home: &&PathBuf| self.lacks(&home.join(self.below)).is_none();
            let home = fitting.iter().find(good)?;
            Some(if name == self.direct { home.join(self.below) } else { home.clone() })
        };
        match set {
            Some((name, folder)) => match self.lacks(&folder) {
                None => Ok(folder),
                Some(file) => {
                    let needs = format!("{} has no {file}", folder.display());
                    Err(JitVariable { name, value: fit(name), needs })
                }
            },
            None => {
                let name = self.homes.first().copied().unwrap_or(self.direct);
                let file = self.files.first().copied().unwrap_or_default();
                let needs = format!("it is not set, and {}/{file} must lie below it", self.below);
                Err(JitVariable { name, value: fit(name), needs })
            }
        }
    }
}
