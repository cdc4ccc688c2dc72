//! A staged tree while it is built: files come in, are verified and recorded.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::staged_source::StagedSource;
use crate::native::arch::Arch;
use crate::native::library_kind::LibraryKind;
use crate::native::manifest::{Entry, LibraryEntry, header_version};
use crate::native::{elf, good_library};

pub(crate) struct Tree {
    root: PathBuf,
    arch: Arch,
    files: Vec<Entry>,
}

impl Tree {
    pub(crate) fn new(root: PathBuf, arch: Arch) -> Self {
        Self { root, arch, files: Vec::new() }
    }

    pub(crate) fn into_files(self) -> Vec<Entry> {
        self.files
    }

    /// Adds every file whose name begins with `from`, under `to`.
    pub(crate) fn add_files(
        &mut self,
        origin: &mut StagedSource,
        from: &str,
        to: &str,
    ) -> Result<()> {
        let files = origin.files_below(from);
        ensure!(
            !files.is_empty(),
            "{}: has no files below `{from}`, which the staged `{to}` is made of; it is not whole",
            origin.name()
        );
        for file in files {
            let path = format!("{to}{}", file.strip_prefix(from).unwrap_or(&file));
            origin.extract(&file, &self.root.join(&path))?;
            self.files.push(Entry::describe(&self.root, &path, origin.name())?);
        }
        Ok(())
    }

    /// Adds the headers of a library, without which its version is not known.
    pub(crate) fn add_headers(
        &mut self,
        origin: &mut StagedSource,
        kind: &LibraryKind,
    ) -> Result<()> {
        for (from, to) in origin.headers(kind) {
            let is_main = to.is_empty() || to == kind.header;
            // A build has a folder beside the header only if the library has further ones.
            if is_main || !origin.files_below(&from).is_empty() {
                self.add_files(origin, &from, &format!("{}/include/{to}", kind.folder))?;
            }
        }
        Ok(())
    }

    /// Adds a library as the one file of its kind and CUDA major; `None` for the one that it has.
    pub(crate) fn add_library(
        &mut self,
        origin: &mut StagedSource,
        kind: &LibraryKind,
        cuda_major: Option<u32>,
    ) -> Result<()> {
        let folder_major = cuda_major.unwrap_or_default();
        let file = origin.library(kind, &origin.library_folder(kind, folder_major))?;
        let path = kind.path(folder_major);
        let shown = format!("{}: `{file}`", origin.name());
        println!("stage-native: {path}");
        origin.extract(&file, &self.root.join(&path))?;
        let library = elf::Library::read(&self.root.join(&path), &shown)?;
        let cuda_major = cuda_major.or_else(|| library.cuda_majors.first().copied());
        let cuda_major = cuda_major.unwrap_or_default();
        good_library::check(&library, kind, self.arch, cuda_major, &shown)?;
        let header = format!("{}/include/{}", kind.folder, kind.header);
        let text = std::fs::read_to_string(self.root.join(&header))
            .with_context(|| format!("{}: has no {}", origin.name(), kind.header))?;
        let version = header_version(&text, kind.macros).with_context(|| {
            format!("{header}: defines no {0}_MAJOR, {0}_MINOR and {0}_PATCH", kind.macros)
        })?;
        let mut entry = Entry::describe(&self.root, &path, origin.name())?;
        entry.library = Some(LibraryEntry::new(library, version, cuda_major));
        self.files.push(entry);
        Ok(())
    }
}
