//! What `verify` finds.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::native::manifest::{Entry, Manifest};

/// What was looked at and what is wrong with it.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    path: PathBuf,
    pub(super) kind: &'static str,
    pub(super) ok: bool,
    pub(crate) problems: Vec<Problem>,
    pub(super) files: usize,
    pub(super) libraries: Vec<Library>,
}

/// Something wrong with a file.
#[derive(Serialize, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) file: String,
    pub(crate) message: String,
}

#[derive(Serialize, Debug)]
pub(super) struct Library {
    pub(super) file: String,
    pub(super) version: String,
    pub(super) cuda_major: u32,
    sha256: String,
    build_id: Option<String>,
}

impl Problem {
    pub(crate) fn new(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: file.into(), message: message.into() }
    }
}

impl Report {
    pub(crate) fn new(path: &Path, kind: &'static str, problems: Vec<Problem>) -> Self {
        let ok = problems.is_empty();
        Self { path: path.to_owned(), kind, ok, problems, files: 0, libraries: Vec::new() }
    }

    pub(crate) fn files(mut self, files: usize) -> Self {
        self.files = files;
        self
    }

    /// The same, of the archive that the tree was in.
    pub(crate) fn of(mut self, path: &Path) -> Self {
        self.path = path.to_owned();
        self.ok = self.problems.is_empty();
        self
    }

    /// Adds what a manifest says.
    pub(crate) fn manifest(mut self, manifest: &Manifest) -> Self {
        self.files = manifest.files.len();
        self.libraries = manifest.files.iter().filter_map(Library::new).collect();
        self
    }
}

impl Library {
    fn new(entry: &Entry) -> Option<Self> {
        let library = entry.library.as_ref()?;
        Some(Self {
            file: entry.path.clone(),
            version: library.version.clone(),
            cuda_major: library.cuda_major,
            sha256: entry.sha256.clone(),
            build_id: library.build_id.clone(),
        })
    }
}
