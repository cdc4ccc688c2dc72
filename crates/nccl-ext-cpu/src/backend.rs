//! The backend: four tables and two hooks.

use std::sync::OnceLock;

use nccl_ep_sys::EpApi;
use nccl_ext_core::backend::{ExtensionTable, Hooks};
use nccl_ext_core::raw::ncclComm_t;
use nccl_ext_core::{Backend, Error, LibraryInfo, MemorySpace, Version};
use nccl_m2n_sys::M2nApi;

use crate::refusal::take_error;
use crate::{driver, ep, m2n, nccl};

/// The CPU backend. It is one for the whole process; worlds are told apart by their unique ids.
#[must_use]
pub fn backend() -> Backend {
    static BACKEND: OnceLock<Backend> = OnceLock::new();
    *BACKEND.get_or_init(|| {
        let library = LibraryInfo::new;
        let builder = Backend::builder("cpu", MemorySpace::Host)
            .nccl(nccl::TABLE)
            .driver(driver::TABLE)
            .extension(ep::TABLE)
            .extension(ep::IMPORT)
            .extension(m2n::TABLE)
            .library(library("libnccl.so.2", Version::from_nccl_code(nccl::VERSION)))
            .library(library(EpApi::LIBRARY, Version::from_extension_code(ep::VERSION)))
            .library(library(M2nApi::LIBRARY, Version::from_extension_code(m2n::VERSION)))
            .hooks(Hooks { take_error, fail_rank });
        // SAFETY: the functions keep the C contracts of their names for host memory: each checks
        // what it can, and needs of the rest what C callers promise.
        unsafe { builder.build() }
    })
}

/// # Safety
/// `comm` is NULL or a live communicator of this backend.
unsafe fn fail_rank(comm: ncclComm_t, error: &Error) {
    // SAFETY: this function's contract.
    if let Ok(member) = unsafe { nccl::member(comm) } {
        member.fail(error);
    }
}
