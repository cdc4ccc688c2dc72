//! What is looked for, and where.

use std::path::{Path, PathBuf};

use super::library::Opened;
use crate::backend::{Backend, BackendBuilder};
use crate::error::Result;
use crate::jit::JitSpec;
use crate::version::Version;

/// What the loader must know of an extension library. The sys crates have one each.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExtensionSpec {
    /// The library's SONAME.
    pub library: &'static str,
    /// The environment variable that names its file.
    pub variable: &'static str,
    /// Its folder in a staged tree: `FOLDER` in `FOLDER/lib/cu13/LIBRARY`.
    pub folder: &'static str,
    /// The oldest NCCL that it works with.
    pub nccl_floor: Version,
    /// Adds its table and [`LibraryInfo`](crate::LibraryInfo) to a backend, or says what is missing.
    pub attach: fn(&Opened, BackendBuilder) -> Result<BackendBuilder>,
    /// Where it looks for a compiler, if it starts one at run time.
    pub jit: Option<&'static JitSpec>,
}

impl ExtensionSpec {
    /// A library that has its kernels inside.
    #[must_use]
    pub const fn new(
        library: &'static str,
        variable: &'static str,
        folder: &'static str,
        nccl_floor: Version,
        attach: fn(&Opened, BackendBuilder) -> Result<BackendBuilder>,
    ) -> Self {
        Self { library, variable, folder, nccl_floor, attach, jit: None }
    }

    /// The library compiles kernels at run time: see [`crate::jit`].
    #[must_use]
    pub const fn compiles_kernels(mut self, jit: &'static JitSpec) -> Self {
        self.jit = Some(jit);
        self
    }

    /// Loads NCCL, the driver and this library, from where the [module](super) says.
    ///
    /// # Errors
    /// As [`Backend::load`].
    pub fn load(&self) -> Result<Backend> {
        Backend::load(&LoadOptions::new(), &[self])
    }

    /// As [`load`](Self::load), with the library from this file only.
    ///
    /// # Errors
    /// As [`Backend::load`].
    pub fn load_from(&self, path: impl AsRef<Path>) -> Result<Backend> {
        Backend::load(&LoadOptions::new().extension(self, path.as_ref()), &[self])
    }

    /// Whether [`load`](Self::load) would work: everything is found and can be opened, no function
    /// is missing, and the versions are accepted. Nothing stays open.
    #[must_use]
    pub fn is_available(&self) -> bool {
        Backend::probe(&LoadOptions::new(), &[self]).is_ok()
    }
}

/// Where to look, and for what; see the [module](super).
#[derive(Debug, Clone)]
pub struct LoadOptions {
    pub(super) nccl: Option<PathBuf>,
    extensions: Vec<(&'static str, PathBuf)>,
    pub(super) cuda: Option<u32>,
    pub(super) workspace: Option<PathBuf>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LoadOptions {
    /// The default search.
    #[must_use]
    pub fn new() -> Self {
        Self { nccl: None, extensions: Vec::new(), cuda: None, workspace: own_workspace() }
    }

    /// Takes NCCL from this file only.
    #[must_use]
    pub fn nccl(mut self, path: impl Into<PathBuf>) -> Self {
        self.nccl = Some(path.into());
        self
    }

    /// Takes an extension from this file only.
    #[must_use]
    pub fn extension(mut self, spec: &ExtensionSpec, path: impl Into<PathBuf>) -> Self {
        self.extensions.push((spec.library, path.into()));
        self
    }

    /// Takes libraries that are built for this CUDA major.
    #[must_use]
    pub fn cuda(mut self, major: u32) -> Self {
        self.cuda = Some(major);
        self
    }

    /// The staged tree of step 3, or `None` to leave the step out. In a release build there is none
    /// unless it is named here.
    #[must_use]
    pub fn workspace(mut self, tree: Option<PathBuf>) -> Self {
        self.workspace = tree;
        self
    }

    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    pub(super) fn extension_path(&self, library: &str) -> Option<&Path> {
        self.extensions.iter().rev().find(|(name, _)| *name == library).map(|(_, p)| p.as_path())
    }
}

/// The tree of the workspace that this crate was built in. A release build carries no path of the
/// machine that built it.
fn own_workspace() -> Option<PathBuf> {
    #[cfg(debug_assertions)]
    {
        let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(1);
        let mut trees = folders.map(|folder| folder.join("native"));
        trees.find(|tree| tree.join(".nccl-extensions-native").is_file())
    }
    #[cfg(not(debug_assertions))]
    None
}
