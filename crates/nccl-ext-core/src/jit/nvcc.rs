//! The CUDA compiler that an extension would start, found by its own rules.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::spec::JitSpec;
use crate::env_value::Lookup;
use crate::error::{CudaSide, LoadAttempt};

/// A compiler that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nvcc {
    /// The file, with symbolic links followed.
    pub path: PathBuf,
    /// What named it: a variable, or `PATH`.
    pub origin: String,
    /// The major of the CUDA toolkit that it belongs to, where that can be told.
    pub cuda_major: Option<u32>,
}

/// Finds the compiler as the library does: by a variable that names it, else `bin/nvcc` below the
/// toolkit that a variable names if it exists, else `nvcc` on `PATH`. A variable that names the
/// compiler is taken as it is, so that nothing is tried after one that leads nowhere.
pub(crate) fn find(spec: &JitSpec, lookup: Lookup<'_>) -> Result<Nvcc, Vec<LoadAttempt>> {
    for name in spec.nvcc {
        if let Some(value) = lookup(name) {
            let origin = format!("{name} is set");
            let found = runnable(Path::new(&value), lookup);
            return found.map_or_else(
                |reason| Err(vec![attempt(&origin, &value, reason)]),
                |path| Ok(Nvcc::new(path, origin.clone())),
            );
        }
    }
    let unset = |name: &&str| attempt("variable", name, "not set");
    let mut tried: Vec<_> = spec.nvcc.iter().map(unset).collect();
    // The library looks at the second only when the first is empty.
    let home = spec.toolkits.iter().find_map(|name| Some((name, lookup(name)?)));
    match home {
        Some((name, home)) => {
            let path = Path::new(&home).join("bin/nvcc");
            let origin = format!("below {name}");
            if path.exists() {
                // Taken once it exists; if it cannot be run, the library fails.
                return match runnable(&path, lookup) {
                    Ok(path) => Ok(Nvcc::new(path, origin)),
                    Err(reason) => {
                        tried.push(attempt(&origin, path, reason));
                        Err(tried)
                    }
                };
            }
            tried.push(attempt(&origin, path, "no such file"));
        }
        None => tried.extend(spec.toolkits.iter().map(unset)),
    }
    match runnable(Path::new("nvcc"), lookup) {
        Ok(path) => Ok(Nvcc::new(path, "on PATH".into())),
        Err(reason) => {
            tried.push(attempt("on PATH", "nvcc", reason));
            Err(tried)
        }
    }
}

fn attempt(origin: &str, candidate: impl AsRef<OsStr>, reason: &str) -> LoadAttempt {
    LoadAttempt {
        origin: origin.into(),
        candidate: candidate.as_ref().into(),
        reason: reason.into(),
    }
}

/// The file that `execvp` would start: a name without a slash is looked up on `PATH`.
fn runnable(name: &Path, lookup: Lookup<'_>) -> Result<PathBuf, &'static str> {
    let bare = name.components().count() == 1 && !name.is_absolute();
    if !bare {
        return match name.canonicalize() {
            Ok(path) if is_executable(&path) => Ok(path),
            Ok(_) => Err("not an executable file"),
            Err(_) => Err("no such file"),
        };
    }
    let path = lookup("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    let found = files.find(|file| is_executable(file)).and_then(|file| file.canonicalize().ok());
    found.ok_or("in no folder of PATH")
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.is_file()
}

impl Nvcc {
    fn new(path: PathBuf, origin: String) -> Self {
        let cuda_major = major_by_files(&path).or_else(|| major_by_asking(&path));
        Self { path, origin, cuda_major }
    }

    /// What a library of another CUDA major does not go with.
    pub(crate) fn as_cuda_side(&self, spec: &JitSpec) -> CudaSide {
        CudaSide::Nvcc { path: self.path.clone(), variable: spec.nvcc_variable() }
    }

    /// The toolkit's folder, which has `bin/nvcc` and `include/`.
    pub(crate) fn toolkit(&self) -> Option<&Path> {
        self.path.parent()?.parent()
    }
}

/// The toolkit's headers beside the compiler say its version without starting it.
fn major_by_files(nvcc: &Path) -> Option<u32> {
    let toolkit = nvcc.parent()?.parent()?;
    let text = std::fs::read_to_string(toolkit.join("include/cuda.h")).ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("#define CUDA_VERSION"))?;
    let code: u32 = line.split_whitespace().next()?.parse().ok()?;
    Some(code / 1000)
}

fn major_by_asking(nvcc: &Path) -> Option<u32> {
    let output = Command::new(nvcc).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, release) = text.split_once("release ")?;
    release.split('.').next()?.trim().parse().ok()
}
