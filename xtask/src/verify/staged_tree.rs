//! Verifying a staged tree against its manifest and against what good libraries are.

use std::collections::BTreeSet;
use std::path::Path;

use super::report::{Problem, Report};
use crate::files::{self, write};
use crate::native::arch::Arch;
use crate::native::library_kind::{self, LibraryKind};
use crate::native::manifest::{self, Entry, LibraryEntry, Manifest};
use crate::native::{elf, good_library};

/// Which files the manifest must list.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Extent {
    /// Those of staged parts: the folder may hold others too.
    Parts,
    /// All but the manifest itself.
    Everything,
}

const PARTS: [&str; 4] = ["ep/", "m2n/", "nccl/", "licenses/"];

pub(crate) fn report(root: &Path, extent: Extent) -> Report {
    let kind = if extent == Extent::Parts { "tree" } else { "archive" };
    let manifest = match Manifest::read(root) {
        Ok(manifest) => manifest,
        Err(error) => {
            let problem = Problem::new(manifest::FILE, format!("{error:#}"));
            return Report::new(root, kind, vec![problem]);
        }
    };
    let mut problems = Vec::new();
    let arch = Arch::from_name(&manifest.arch);
    if arch.is_none() {
        let message = format!(
            "expected an `arch` of x86_64 or aarch64, found `{}`; stage again",
            manifest.arch
        );
        problems.push(Problem::new(manifest::FILE, message));
    }
    for entry in &manifest.files {
        problems.extend(file(root, entry).or_else(|| library(root, entry, arch?)));
    }
    problems.extend(unlisted(root, &manifest, extent));
    problems.extend(missing(&manifest));
    Report::new(root, kind, problems).manifest(&manifest)
}

/// Whether a listed file is there, byte for byte.
fn file(root: &Path, entry: &Entry) -> Option<Problem> {
    let problem = |message: String| Some(Problem::new(&entry.path, message));
    if !write::stays_inside(&entry.path) {
        return problem("expected a path inside the tree; stage again".into());
    }
    // A link at any step leads to files that are not the tree's.
    let mut path = root.to_path_buf();
    for part in Path::new(&entry.path).components() {
        path.push(part);
        match path.symlink_metadata() {
            Err(_) => return problem("listed in the manifest, and not there; stage again".into()),
            Ok(meta) if meta.is_symlink() => {
                let message = "expected a regular file, found a symbolic link on the way to it; \
                               stage again";
                return problem(message.into());
            }
            Ok(_) => {}
        }
    }
    if !path.is_file() {
        // Reading a pipe would wait for somebody to write to it.
        return problem("expected a regular file; stage again".into());
    }
    match manifest::digest(&path) {
        Err(error) => problem(format!("cannot be read ({error})")),
        Ok((size, _)) if size != entry.size => problem(format!(
            "expected {} bytes, found {size}; it was changed or cut short, so stage again",
            entry.size
        )),
        Ok((_, sha256)) if sha256 != entry.sha256 => problem(format!(
            "expected SHA-256 {}, found {sha256}; it was changed, so stage again",
            entry.sha256
        )),
        Ok(_) => None,
    }
}

/// Whether a library is what its place says, and the manifest what the library says.
fn library(root: &Path, entry: &Entry, arch: Arch) -> Option<Problem> {
    let kind = LibraryKind::of_path(&entry.path)?;
    let recorded = entry.library.as_ref();
    let place = entry.path.strip_prefix(kind.folder)?.starts_with("/lib/");
    if !place && recorded.is_none() {
        return None;
    }
    let problem = |message: String| Some(Problem::new(&entry.path, message));
    let Some(recorded) = recorded else {
        return problem(format!("expected {} alone in this folder; stage again", kind.file));
    };
    let expected = kind.path(recorded.cuda_major);
    if entry.path != expected {
        return problem(format!(
            "expected a library for CUDA {} at {expected}; stage again",
            recorded.cuda_major
        ));
    }
    let library = match elf::Library::read(&root.join(&entry.path), "it") {
        Ok(library) => library,
        Err(error) => return problem(format!("{error:#}")),
    };
    if let Err(error) = good_library::check(&library, kind, arch, recorded.cuda_major, "it") {
        return problem(format!("{error:#}"));
    }
    let read = LibraryEntry::new(library, recorded.version.clone(), recorded.cuda_major);
    if read != *recorded {
        return problem(format!("the manifest says {recorded:?}, the file {read:?}; stage again"));
    }
    None
}

/// Files that the manifest does not list: in a library's folder such a file can be taken for it.
fn unlisted(root: &Path, manifest: &Manifest, extent: Extent) -> Vec<Problem> {
    let listed: BTreeSet<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
    let mut found = Vec::new();
    files::walk(root, Path::new(""), &mut found);
    found.sort();
    let counts = |file: &String| {
        let in_part = PARTS.iter().any(|part| file.starts_with(part));
        (in_part || extent == Extent::Everything) && file != manifest::FILE
    };
    let unlisted = found.into_iter().filter(counts).filter(|file| !listed.contains(&**file));
    unlisted
        .map(|file| {
            let link = root.join(&file).is_symlink();
            let what = if link { "a symbolic link" } else { "a file" };
            Problem::new(file, format!("{what} that the manifest does not list; remove it"))
        })
        .collect()
}

/// Parts without which a tree is not whole.
fn missing(manifest: &Manifest) -> Vec<Problem> {
    let listed = |path: &str| manifest.files.iter().any(|file| file.path == path);
    let mut needed = Vec::new();
    for kind in [&library_kind::EP, &library_kind::M2N] {
        needed.push(format!("{}/include/{}", kind.folder, kind.header));
        needed.extend(manifest.cuda.iter().map(|major| kind.path(*major)));
    }
    if manifest.cuda.is_empty() {
        let message =
            "expected the CUDA majors that were staged in `cuda`, found none; stage again";
        return vec![Problem::new(manifest::FILE, message)];
    }
    let missing = needed.into_iter().filter(|path| !listed(path));
    missing.map(|path| Problem::new(path, "a whole tree has it; stage again")).collect()
}
