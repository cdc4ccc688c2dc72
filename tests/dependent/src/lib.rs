//! Uses the sys crate as any crate may: no CUDA major is chosen at build time.

use nccl_ext_core::loader::LoadOptions;
use nccl_ext_core::{Backend, LibraryInfo, Result};

/// What would be loaded on this machine, of whichever CUDA major fits.
///
/// # Errors
/// As [`Backend::load`].
pub fn found() -> Result<Vec<LibraryInfo>> {
    Backend::probe(&LoadOptions::new(), &[&nccl_ep_sys::SPEC])
}
