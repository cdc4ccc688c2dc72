//! `manifest.toml`: what lies in a staged tree, and where it came from.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::arch::Arch;
use super::elf::Library;
use crate::files::write;

/// Name of the file in the tree's root.
pub(crate) const FILE: &str = "manifest.toml";

/// Raised when a reader of an older form would misread a newer one.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Manifest {
    pub(crate) schema: u32,
    /// Processor architecture of the libraries.
    #[serde(default)]
    pub(crate) arch: String,
    /// CUDA majors that were staged, oldest first.
    #[serde(default)]
    pub(crate) cuda: Vec<u32>,
    #[serde(rename = "file", default)]
    pub(crate) files: Vec<Entry>,
}

/// One file of the tree.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Relative to the tree's root, with `/`.
    pub(crate) path: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
    /// What it was taken from: the file name of a wheel, or a folder with `build:` or `tree:`.
    pub(crate) source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) library: Option<LibraryEntry>,
}

/// What is recorded of a shared library beyond the bytes.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct LibraryEntry {
    /// From the macros of the header that the same archive carries.
    pub(crate) version: String,
    pub(crate) cuda_major: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) build_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) soname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runpath: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) glibc: Option<String>,
    pub(crate) needed: Vec<String>,
    pub(crate) imports: Vec<String>,
}

impl Manifest {
    pub(crate) fn new(arch: Arch, cuda: &[u32], mut files: Vec<Entry>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self { schema: SCHEMA, arch: arch.name().to_owned(), cuda: cuda.to_vec(), files }
    }

    /// The manifest of the tree at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!("{}: cannot be read; a whole tree has it, so stage again", path.display())
        })?;
        let manifest: Self = toml::from_str(&text).with_context(|| {
            format!("{}: is no manifest of this form; stage again", path.display())
        })?;
        ensure!(
            manifest.schema == SCHEMA,
            "{}: expected schema {SCHEMA}, found {}; use the xtask that wrote it, or stage again",
            path.display(),
            manifest.schema
        );
        Ok(manifest)
    }

    pub(crate) fn save(&self, root: &Path) -> Result<()> {
        let body = toml::to_string(self).context("writing the manifest as TOML")?;
        let text = format!("# Written by cargo xtask; native/README.md describes it.\n{body}");
        write::file(&root.join(FILE), text.as_bytes())
    }
}

impl Entry {
    /// Describes the file `path` below `root`.
    pub(crate) fn describe(root: &Path, path: &str, source: &str) -> Result<Self> {
        let (size, sha256) = digest(&root.join(path)).with_context(|| format!("reading {path}"))?;
        Ok(Self { path: path.to_owned(), size, sha256, source: source.to_owned(), library: None })
    }
}

impl LibraryEntry {
    pub(crate) fn new(library: Library, version: String, cuda_major: u32) -> Self {
        Self {
            version,
            cuda_major,
            build_id: library.build_id,
            soname: library.soname,
            runpath: library.runpath,
            glibc: library.glibc,
            needed: library.needed,
            imports: library.imports.into_iter().collect(),
        }
    }
}

/// Size and SHA-256 of a file.
pub(crate) fn digest(path: &Path) -> Result<(u64, String)> {
    let mut file = std::fs::File::open(path)?;
    let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        size += read as u64;
        hash.update(buffer.get(..read).unwrap_or_default());
    }
    let hex = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((size, hex))
}

/// The version in a header's `<PREFIX>_MAJOR`, `_MINOR` and `_PATCH` macros.
pub(crate) fn header_version(header: &str, prefix: &str) -> Option<String> {
    let part = |which: &str| -> Option<u32> {
        let name = format!("{prefix}_{which}");
        header.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let defines = words.next() == Some("#define") && words.next() == Some(&name);
            defines.then(|| words.next()?.parse().ok()).flatten()
        })
    };
    Some(format!("{}.{}.{}", part("MAJOR")?, part("MINOR")?, part("PATCH")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_version_is_read_from_its_own_macros() {
        let header =
            "#define X_API_MAJOR 7\n#define X_MAJOR 0\n#define  X_MINOR 2\n#define X_PATCH 10\n";
        assert_eq!(header_version(header, "X").as_deref(), Some("0.2.10"));
        assert_eq!(header_version(header, "Y"), None);
    }
}
