//! The libraries behind a backend.

use std::any::Any;
use std::path::PathBuf;

use crate::version::Version;

/// A library behind a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LibraryInfo {
    /// Its name: `libnccl.so.2`.
    pub name: &'static str,
    /// The version it reports.
    pub version: Version,
    /// The file that is mapped; `None` for code inside this program.
    pub path: Option<PathBuf>,
    /// Identifies the build of the mapped code: the GNU build id, in hexadecimal.
    pub build_id: Option<String>,
    /// The CUDA major that it was built with, where its content or its folder tells.
    pub cuda_major: Option<u32>,
    /// Which step of the loader's search found it.
    pub origin: Option<String>,
}

impl LibraryInfo {
    /// Code inside this program.
    #[must_use]
    pub const fn new(name: &'static str, version: Version) -> Self {
        Self { name, version, path: None, build_id: None, cuda_major: None, origin: None }
    }

    /// A library in a file. The loader fills in the rest.
    #[must_use]
    pub fn at(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }
}

/// A function table of an extension library, as its sys crate defines it.
///
/// The core crate knows no extension: a backend keeps each table under its type.
pub trait ExtensionTable: Any + Send + Sync {
    /// The library's name.
    const LIBRARY: &'static str;
}
