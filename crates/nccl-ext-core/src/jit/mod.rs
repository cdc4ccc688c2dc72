//! What an extension needs that compiles its kernels at run time.
//!
//! Such a library starts `nvcc` when a kernel is first used, on headers that it looks for by
//! variables. Where one of these is missing it may end the process, or leave a mark that makes
//! every later attempt fail, so all of them are looked for before anything is made. The names of
//! the variables are the extension's: it says them in a [`JitSpec`].
//!
//! Nothing here writes the environment but [`JitEnv::apply`], which says when that is allowed.

pub(crate) mod nvcc;
mod spec;

use std::path::{Path, PathBuf};

pub use self::nvcc::Nvcc;
pub use self::spec::{HeaderFolder, JitSpec};
use crate::env_value::{Lookup, os_variable};
pub use crate::error::JitVariable;
use crate::error::{Error, LoadAttempt, Result};

/// The libraries that a run-time compiler belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitRoots {
    /// Where the extension looks.
    pub spec: &'static JitSpec,
    /// The extension's file: its headers lie beside it.
    pub library: PathBuf,
    /// NCCL's file.
    pub nccl: PathBuf,
    /// The CUDA major that the extension was built with.
    pub cuda_major: Option<u32>,
}

/// What was found of compiler and headers.
#[derive(Debug, Clone)]
pub struct JitEnv {
    roots: JitRoots,
    nvcc: Result<Nvcc, Vec<LoadAttempt>>,
    library_headers: Option<PathBuf>,
    nccl_headers: Option<PathBuf>,
    cuda_headers: Option<PathBuf>,
    missing: Vec<JitVariable>,
}

impl JitEnv {
    /// Looks with this process's environment.
    #[must_use]
    pub fn find(roots: &JitRoots) -> Self {
        Self::find_with(roots, &os_variable, &["/usr/local/cuda"])
    }

    /// `toolkits` are folders to suggest when no variable leads to a compiler.
    fn find_with(roots: &JitRoots, lookup: Lookup<'_>, toolkits: &[&str]) -> Self {
        let spec = roots.spec;
        let nvcc = nvcc::find(spec, lookup);
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
                let name = spec.nvcc_variable();
                keep(Err(JitVariable { name, value: Some(path), needs }));
            }
        }
        let library_headers = keep(spec.library_headers.find(lookup, &above(&roots.library)));
        let mut nccl = above(&roots.nccl);
        // Where a distribution's packages put the header, whatever the library's folder.
        nccl.push("/usr".into());
        let nccl_headers = keep(spec.nccl_headers.find(lookup, &nccl));
        let toolkit = nvcc.as_ref().ok().and_then(|nvcc| nvcc.toolkit());
        // The compiler adds its own toolkit's headers, so that no variable is needed for those.
        let own = toolkit.map(|toolkit| toolkit.join(spec.cuda_headers.below));
        let own = own.filter(|folder| spec.cuda_headers.lacks(folder).is_none());
        let toolkits: Vec<_> = toolkit.map(Path::to_path_buf).into_iter().collect();
        let found = spec.cuda_headers.find(lookup, &toolkits);
        let cuda_headers = match (found, own) {
            (Err(_), Some(own)) => Some(own),
            (found, _) => keep(found),
        };
        Self { roots: roots.clone(), nvcc, library_headers, nccl_headers, cuda_headers, missing }
    }

    /// The compiler that the library would start.
    #[must_use]
    pub fn nvcc(&self) -> Option<&Nvcc> {
        self.nvcc.as_ref().ok()
    }

    /// The library's own headers that it compiles kernels from, where it would find them.
    #[must_use]
    pub fn library_headers(&self) -> Option<&Path> {
        self.library_headers.as_deref()
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
        let JitSpec { library, .. } = *self.roots.spec;
        let variable = self.roots.spec.nvcc_variable();
        match &self.nvcc {
            Ok(nvcc) => self.roots.check_major(nvcc)?,
            // With a compiler to suggest, the list of variables says it better.
            Err(tried) if !self.missing.iter().any(|missing| missing.name == variable) => {
                return Err(Error::NvccNotFound { library, variable, tried: tried.clone() });
            }
            Err(_) => {}
        }
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(Error::JitEnvironment { library, missing: self.missing.clone() })
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

impl JitRoots {
    fn check_major(&self, nvcc: &Nvcc) -> Result<()> {
        match (self.cuda_major, nvcc.cuda_major) {
            (Some(built_for), Some(found)) if built_for != found => Err(Error::CudaMajorMismatch {
                library: self.library.clone(),
                built_for,
                against: nvcc.as_cuda_side(self.spec),
                found,
            }),
            _ => Ok(()),
        }
    }
}
