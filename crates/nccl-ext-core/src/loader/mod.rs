//! Finding, checking and opening the native libraries.
//!
//! A candidate is opened, checked and closed again when it is refused; only an accepted library
//! stays mapped, for good. Every attempt is recorded, so that an error says where was looked and
//! why each place would not do. The environment is read, never written.
//!
//! # Where an extension is looked for
//!
//! 1. The path given with [`LoadOptions::extension`], else the one in its variable
//!    ([`ExtensionSpec::variable`]). Such a path stands alone: falling back to another
//!    file than the one that was asked for would hide the mistake.
//! 2. The staged tree that `NCCL_EXTENSIONS_NATIVE_DIR` names.
//! 3. The `native/` of the workspace that this crate was built in; debug builds only.
//! 4. Beside the executable: the tree that `bin/` is part of (an unpacked archive),
//!    `../lib/nccl-extensions`, the executable's own folder; then single files in `../lib` and in
//!    its folder.
//! 5. The vendor's Python package: on `PYTHONPATH`, in `VIRTUAL_ENV`, in `CONDA_PREFIX`, around the
//!    `python3` on `PATH`, in `~/.local` and in the system's folders. No Python is started.
//! 6. The dynamic linker, by SONAME and then by the bare name.
//!
//! NCCL comes first. One that the process has mapped is taken, since two cannot be mixed;
//! else [`LoadOptions::nccl`] or `NCCL_LIBRARY`, alone; else steps 2 to 6.
//!
//! # Which CUDA major
//!
//! A tree holds a library for each CUDA major. [`LoadOptions::cuda`] chooses, else
//! `NCCL_EXTENSIONS_CUDA`, else the feature `cu12` or `cu13`, else the `nvcc` that an extension
//! would start, else the newest that the driver supports. Whatever is found is refused when it is
//! newer than the driver, or when its compiler is of another major.

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod content;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
pub(crate) mod cuda;
mod library;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod load;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod mapped;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod nccl;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod places;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod python;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod search;

use std::path::{Path, PathBuf};

pub use library::Opened;

use crate::backend::{Backend, BackendBuilder, LibraryInfo};
use crate::error::{Error, Result};
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
    /// Adds its table and [`LibraryInfo`] to a backend, or says what is missing.
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

    /// Loads NCCL, the driver and this library, from where the [module](self) says.
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

/// Where to look, and for what; see the [module](self).
#[derive(Debug, Clone)]
pub struct LoadOptions {
    nccl: Option<PathBuf>,
    extensions: Vec<(&'static str, PathBuf)>,
    cuda: Option<u32>,
    workspace: Option<PathBuf>,
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
    fn extension_path(&self, library: &str) -> Option<&Path> {
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

impl Backend {
    /// Loads NCCL, the driver and the given extensions as a GPU backend, from where the
    /// [module](crate::loader) says.
    ///
    /// # Errors
    /// [`Error::Load`] with every attempt; what was wrong with the one library that was found:
    /// [`Error::TooOld`] (NCCL's, before an extension is opened), [`Error::MissingSymbols`],
    /// [`Error::CudaMajorMismatch`]; [`Error::MultipleNccl`]; [`Error::Invalid`] for a variable
    /// that has no such value; [`Error::Unsupported`] on platforms other than 64-bit Linux with
    /// the GNU C library, which the vendor builds for.
    pub fn load(options: &LoadOptions, extensions: &[&ExtensionSpec]) -> Result<Self, Error> {
        #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
        return load::load(options, extensions).map(load::Loaded::keep);
        #[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
        return unsupported(options, extensions);
    }

    /// Does all that [`load`](Self::load) does and closes the libraries again: whether it would
    /// work, and with what.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn probe(options: &LoadOptions, extensions: &[&ExtensionSpec]) -> Result<Vec<LibraryInfo>> {
        #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
        return load::load(options, extensions).map(load::Loaded::close);
        #[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
        return unsupported(options, extensions);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
fn unsupported<T>(_: &LoadOptions, _: &[&ExtensionSpec]) -> Result<T> {
    Err(Error::Unsupported {
        feature: "loading native libraries",
        library: "this platform".into(),
        found: format!("{}, {} bits", std::env::consts::OS, usize::BITS),
        needs: "64-bit Linux with the GNU C library".into(),
    })
}

/// Writes the functions by which a sys crate loads its library: `load`, `load_from` and
/// `is_available` of an [`ExtensionSpec`](crate::loader::ExtensionSpec).
#[macro_export]
macro_rules! extension_functions {
    ($spec:ident, $name:literal) => {
        #[doc = concat!("Loads NCCL, the driver and ", $name, ", from where \
            [`nccl_ext_core::loader`] says.")]
        ///
        /// # Errors
        /// As [`Backend::load`]($crate::Backend::load).
        pub fn load() -> $crate::Result<$crate::Backend> {
            $spec.load()
        }

        #[doc = concat!("As [`load`], with ", $name, " from this file only.")]
        ///
        /// # Errors
        /// As [`Backend::load`]($crate::Backend::load).
        pub fn load_from(path: impl AsRef<::std::path::Path>) -> $crate::Result<$crate::Backend> {
            $spec.load_from(path)
        }

        /// Whether [`load`] would work: everything is found and can be opened, no function is
        /// missing, and the versions are accepted. Nothing stays open.
        #[must_use]
        pub fn is_available() -> bool {
            $spec.is_available()
        }
    };
}
