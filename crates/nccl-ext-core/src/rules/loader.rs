//! Rules of loading the native libraries.

use crate::rules;

/// A choice that a variable makes.
pub(crate) struct ChoiceFacts<'a> {
    pub(crate) value: &'a str,
    /// What may be chosen.
    pub(crate) majors: &'a [u32],
}

impl ChoiceFacts<'_> {
    /// The major that it chooses, if there is such a one.
    pub(crate) fn major(&self) -> Option<u32> {
        self.value.trim().parse().ok().filter(|major| self.majors.contains(major))
    }
}

rules! {
    /// Checked when the variable is set.
    CUDA_MAJOR over ChoiceFacts {
        "loader.cuda-major" on "NCCL_EXTENSIONS_CUDA":
            "it chooses the CUDA major of the libraries to load" ("book native.md", Local)
            |f| f.major().is_none() => ("12 or 13, or not to be set", f.value);
    }
}
