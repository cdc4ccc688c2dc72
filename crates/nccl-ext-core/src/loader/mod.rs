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
mod options;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod places;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod python;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod search;

pub use self::library::Opened;
pub use self::options::{ExtensionSpec, LoadOptions};

use crate::backend::{Backend, LibraryInfo};
use crate::error::{Error, Result};

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
