//! Where Python keeps packages, without starting one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::env_value::os_variable;

/// The folders of packages that are there, each with what led to it, in Python's own order of
/// importance. No folder comes twice.
pub(super) fn sites() -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let mut add = |origin: &str, site: PathBuf| {
        if site.is_dir() && !found.iter().any(|(_, known)| *known == site) {
            found.push((format!("Python packages, {origin}"), site));
        }
    };
    for entry in os_variable("PYTHONPATH").iter().flat_map(std::env::split_paths) {
        // Empty entries mean the current folder, which is no place to load code from.
        if !entry.as_os_str().is_empty() {
            add("PYTHONPATH", entry);
        }
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = os_variable(name) {
            below(Path::new(&prefix)).into_iter().for_each(|site| add(name, site));
        }
    }
    if let Some(python) = on_path(OsStr::new("python3")) {
        // A virtual environment's python3 is a link: its own prefix counts first.
        let real = python.canonicalize().ok();
        for file in [Some(python), real].into_iter().flatten() {
            let prefix = file.parent().and_then(Path::parent);
            prefix.into_iter().flat_map(below).for_each(|site| add("python3 on PATH", site));
        }
    }
    if let Some(home) = os_variable("HOME") {
        below(&Path::new(&home).join(".local")).into_iter().for_each(|site| add("~/.local", site));
    }
    for prefix in ["/usr/local", "/usr"] {
        below(Path::new(prefix)).into_iter().for_each(|site| add(prefix, site));
    }
    found
}

/// The folders of packages of an installation: `lib/python3.12/site-packages`, and Debian's
/// `dist-packages`, which its own Python 3 has without a minor version.
fn below(prefix: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["lib", "lib64"]
        .iter()
        .flat_map(|lib| std::fs::read_dir(prefix.join(lib)).into_iter().flatten())
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"))
        })
        .flat_map(|path| ["site-packages", "dist-packages"].map(|name| path.join(name)))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = os_variable("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
