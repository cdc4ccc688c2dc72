//! Reading and writing files and folders.

pub(crate) mod generated;
pub(crate) mod write;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The names of everything below `folder` that is no folder itself, links to folders included.
pub(crate) fn walk(root: &Path, folder: &Path, files: &mut Vec<String>) {
    let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten();
    for entry in entries.filter_map(|entry| entry.ok()) {
        let path = folder.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(root, &path, files);
        } else if let Some(path) = path.to_str() {
            files.push(path.to_owned());
        }
    }
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Every Rust file below a folder with its text, in the order of their names.
pub(crate) fn rust_sources(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = read(&path)?;
                files.push((path, text));
            }
        }
    }
    ensure!(!files.is_empty(), "{}: no Rust sources", folder.display());
    files.sort();
    Ok(files)
}
