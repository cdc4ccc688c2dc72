//! What errors of loading libraries and of run-time compilers tell.

use std::fmt;
use std::path::PathBuf;

/// One place where a library was looked for, and why it was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadAttempt {
    /// What named the place: a variable, an argument, a search step.
    pub origin: String,
    /// The path or name that was tried.
    pub candidate: PathBuf,
    /// Why it was refused.
    pub reason: String,
}

/// What a library of one CUDA major does not go with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CudaSide {
    /// The driver, whose major is the newest that it supports.
    Driver {
        /// Its file.
        path: PathBuf,
    },
    /// The compiler that the library would start.
    Nvcc {
        /// Its file.
        path: PathBuf,
        /// The variable that names another.
        variable: &'static str,
    },
    /// The major that was asked for.
    Choice {
        /// Who asked: an option, a variable, a feature.
        by: String,
    },
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
