//! What the run-time compiler of libnccl_ep needs.
//!
//! The library compiles its kernels when they are first used, by starting `nvcc` on headers that it
//! looks for by variables. Where one of these is missing it ends the process or leaves a mark that
//! makes every later attempt fail, so a group is only made when all of them are found.
//!
//! Nothing here writes the environment but [`JitEnv::apply`], which says when that is allowed.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::environment::{Lookup, variable};
use crate::error::{CudaSide, Error, LoadAttempt, Result};
use crate::nvcc;

pub use crate::nvcc::Nvcc;

/// The libraries that a run-time compiler belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitRoots {
    /// The extension's file: its headers lie beside it.
    pub library: PathBuf,
    /// NCCL's file.
    pub nccl: PathBuf,
    /// The CUDA major that the extension was built with.
    pub cuda_major: Option<u32>,
}

/// A variable that is not set, or leads to a folder that will not do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JitVariable {
    /// Its name.
    pub name: &'static str,
    /// The value to set; `None` when nothing on this machine was found to fit.
    pub value: Option<PathBuf>,
    /// What it must lead to, and what is there instead.
    pub needs: String,
}

impl fmt::Display for JitVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, needs } = self;
        match value {
            Some(value) => write!(f, "set {name}={} ({needs})", value.display()),
            None => write!(f, "set {name} ({needs}; none was found)"),
        }
    }
}

/// What was found of compiler and headers.
#[derive(Debug, Clone)]
pub struct JitEnv {
    roots: JitRoots,
    nvcc: Result<Nvcc, Vec<LoadAttempt>>,
    ep_headers: Option<PathBuf>,
    nccl_headers: Option<PathBuf>,
    cuda_headers: Option<PathBuf>,
    missing: Vec<JitVariable>,
}

/// One of the header folders: how the library finds it, and when it will do.
struct Headers {
    /// Names the folder itself.
    direct: &'static str,
    /// Names the folder above `below`; the first that is set counts.
    homes: &'static [&'static str],
    below: &'static str,
    files: &'static [&'static str],
}

const EP: Headers = Headers {
    direct: "NCCL_EP_JIT_SOURCE_DIR",
    homes: &["NCCL_EP_HOME"],
    below: "include/nccl_ep",
    files: &["common.hpp", "ep_enums.h", "config.h", "device", "../nccl_ep.h"],
};

const NCCL: Headers = Headers {
    direct: "NCCL_EP_JIT_BUILD_INCLUDE_DIR",
    homes: &["NCCL_HOME"],
    below: "include",
    files: &["nccl.h", "nccl_device.h", "nccl_device"],
};

const CUDA: Headers = Headers {
    direct: "NCCL_EP_JIT_CUDA_INCLUDE_DIR",
    homes: &["CUDA_HOME", "CUDA_PATH"],
    below: "include",
    files: &["cuda_runtime.h"],
};

impl Headers {
    /// The first file that a folder lacks.
    fn lacks(&self, folder: &Path) -> Option<&'static str> {
        self.files.iter().copied().find(|file| !folder.join(file).exists())
    }

    /// What the library would use, or the variable to set. `fitting` are values for the first of
    /// `homes` that may do.
    fn find(&self, lookup: Lookup<'_>, fitting: &[PathBuf]) -> Result<PathBuf, JitVariable> {
        let set = lookup(self.direct).map(|value| (self.direct, PathBuf::from(value)));
        let set = set.or_else(|| {
            let home = self.homes.iter().find_map(|name| Some((*name, lookup(name)?)))?;
            Some((home.0, Path::new(&home.1).join(self.below)))
        });
        // A direct variable leads to the headers themselves, the others to a folder above.
        let fit = |name| {
            let good = |home: &&PathBuf| self.lacks(&home.join(self.below)).is_none();
            let home = fitting.iter().find(good)?;
            Some(if name == self.direct { home.join(self.below) } else { home.clone() })
        };
        match set {
            Some((name, folder)) => match self.lacks(&folder) {
                None => Ok(folder),
                Some(file) => {
                    let needs = format!("{} has no {file}", folder.display());
                    Err(JitVariable { name, value: fit(name), needs })
                }
            },
            None => {
                let name = self.homes.first().copied().unwrap_or(self.direct);
                let file = self.files.first().copied().unwrap_or_default();
                let needs = format!("it is not set, and {}/{file} must lie below it", self.below);
                Err(JitVariable { name, value: fit(name), needs })
            }
        }
    }
}

impl JitEnv {
    /// Looks with this process's environment.
    #[must_use]
    pub fn find(roots: &JitRoots) -> Self {
        Self::find_with(roots, &variable, &["/usr/local/cuda"])
    }

    /// `toolkits` are folders to suggest when no variable leads to a compiler.
    fn find_with(roots: &JitRoots, lookup: Lookup<'_>, toolkits: &[&str]) -> Self {
        let nvcc = nvcc::find(lookup);
        let mut missing = Vec::new();
        let mut keep = |found: Result<PathBuf, JitVariable>| match found {
            Ok(folder) => Some(folder),
            Err(variable) => {
                missing.push(variable);
                None
            }
        };
        if nvcc.is_err() {
            let mut known = toolkits.iter().map(|toolkit| Path::new(toolkit).join("bin/nvcc"));
            if let Some(path) = known.find(|path| path.is_file()) {
                let needs = "no variable and no folder of PATH leads to nvcc".into();
                let name = "NCCL_EP_JIT_NVCC";
                keep(Err(JitVariable { name, value: Some(path), needs }));
            }
        }
        let ep_headers = keep(EP.find(lookup, &above(&roots.library)));
        let mut nccl = above(&roots.nccl);
        // Where a distribution's packages put the header, whatever the library's folder.
        nccl.push("/usr".into());
        let nccl_headers = keep(NCCL.find(lookup, &nccl));
        let toolkit = nvcc.as_ref().ok().and_then(|nvcc| nvcc.toolkit());
        // The compiler adds its own toolkit's headers, so that no variable is needed for those.
        let own = toolkit.map(|toolkit| toolkit.join(CUDA.below));
        let own = own.filter(|folder| CUDA.lacks(folder).is_none());
        let found =
            CUDA.find(lookup, &toolkit.map(Path::to_path_buf).into_iter().collect::<Vec<_>>());
        let cuda_headers = match (found, own) {
            (Err(_), Some(own)) => Some(own),
            (found, _) => keep(found),
        };
        Self { roots: roots.clone(), nvcc, ep_headers, nccl_headers, cuda_headers, missing }
    }

    /// The compiler that the library would start.
    #[must_use]
    pub fn nvcc(&self) -> Option<&Nvcc> {
        self.nvcc.as_ref().ok()
    }

    /// The library's own headers that it compiles kernels from, where it would find them.
    #[must_use]
    pub fn ep_headers(&self) -> Option<&Path> {
        self.ep_headers.as_deref()
    }

    /// NCCL's headers, where the library would find them.
    #[must_use]
    pub fn nccl_headers(&self) -> Option<&Path> {
        self.nccl_headers.as_deref()
    }

    /// CUDA's headers, where the library or its compiler would find them.
    #[must_use]
    pub fn cuda_headers(&self) -> Option<&Path> {
        self.cuda_headers.as_deref()
    }

    /// The variables that are not set, or lead nowhere, with the value to set where one was found.
    #[must_use]
    pub fn missing(&self) -> &[JitVariable] {
        &self.missing
    }

    /// Whether the library would find all that it needs.
    ///
    /// # Errors
    /// [`Error::NvccNotFound`], [`Error::CudaMajorMismatch`] for a compiler of another CUDA major
    /// than the library's, [`Error::JitEnvironment`].
    pub fn check(&self) -> Result<()> {
        match &self.nvcc {
            Ok(nvcc) => check_major(&self.roots, nvcc)?,
            // With a compiler to suggest, the list of variables says it better.
            Err(tried) if !self.missing.iter().any(|v| v.name == "NCCL_EP_JIT_NVCC") => {
                return Err(Error::NvccNotFound { tried: tried.clone() });
            }
            Err(_) => {}
        }
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(Error::JitEnvironment { missing: self.missing.clone() })
    }

    /// Sets each missing variable whose value is known. [`find`](Self::find) again tells whether
    /// that was enough.
    ///
    /// # Safety
    /// No other thread may run: the C library reads the environment without a lock. First thing in
    /// `main` is such a place. The library reads these variables once, before its first kernel.
    pub unsafe fn apply(&self) {
        for variable in &self.missing {
            if let Some(value) = &variable.value {
                // SAFETY: this function's contract.
                unsafe { std::env::set_var(variable.name, value) };
            }
        }
    }
}

/// Folders that may hold `include/` for a library in `lib/` or `lib/cuNN/`.
fn above(library: &Path) -> Vec<PathBuf> {
    let file = library.canonicalize().unwrap_or_else(|_| library.into());
    file.ancestors().skip(2).take(2).map(Path::to_path_buf).collect()
}

pub(crate) fn check_major(roots: &JitRoots, nvcc: &Nvcc) -> Result<()> {
    match (roots.cuda_major, nvcc.cuda_major) {
        (Some(built_for), Some(found)) if built_for != found => Err(Error::CudaMajorMismatch {
            library: roots.library.clone(),
            built_for,
            against: CudaSide::Nvcc { path: nvcc.path.clone() },
            found,
        }),
        _ => Ok(()),
    }
}
