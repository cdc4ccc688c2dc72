//! The two backends: five tables and two hooks each.

use std::sync::OnceLock;

use nccl_ep_sys::EpApi;
use nccl_ext_core::backend::{BackendBuilder, ExtensionTable, Hooks};
use nccl_ext_core::raw::ncclComm_t;
use nccl_ext_core::{Backend, Error, LibraryInfo, MemorySpace, Version};
use nccl_m2n_sys::M2nApi;

use crate::refusal::take_error;
use crate::{driver, ep, ids, m2n, nccl};

/// The CPU backend, where every call is complete when it returns. It is one for the whole process;
/// worlds are told apart by their unique ids.
#[must_use]
pub fn backend() -> Backend {
    static BACKEND: OnceLock<Backend> = OnceLock::new();
    *BACKEND.get_or_init(|| {
        let builder = Backend::builder("cpu", MemorySpace::Host);
        with_tables(builder.nccl(nccl::TABLE).driver(driver::TABLE))
    })
}

/// The CPU backend that behaves as a GPU does: its memory is a space of its own, and a call returns
/// before its work is done, which streams run later, each in its own order and in no other.
///
/// Two uses of the same bytes that nothing orders, one of them a write, are
/// [`Error::Race`], whatever the bytes happen to be. So it is where a program's streams, events and
/// drops are tried out without a GPU. Its communicators come from unique ids with
/// [`CpuConfig::deferred`](crate::CpuConfig::deferred).
#[must_use]
pub fn deferred_backend() -> Backend {
    static BACKEND: OnceLock<Backend> = OnceLock::new();
    *BACKEND.get_or_init(|| {
        let builder = Backend::builder("cpu-deferred", MemorySpace::Device);
        with_tables(builder.nccl(nccl::DEFERRED_TABLE).driver(driver::DEFERRED_TABLE))
    })
}

/// The extensions, which look at the world that a call belongs to.
fn with_tables(builder: BackendBuilder) -> Backend {
    let library = LibraryInfo::new;
    let builder = builder
        .extension(ep::TABLE)
        .extension(ep::IMPORT)
        .extension(m2n::TABLE)
        .extension(ids::TABLE)
        .library(library("libnccl.so.2", Version::from_nccl_code(nccl::VERSION)))
        .library(library(EpApi::LIBRARY, Version::from_extension_code(ep::VERSION)))
        .library(library(M2nApi::LIBRARY, Version::from_extension_code(m2n::VERSION)))
        .hooks(Hooks { take_error, fail_rank });
    // SAFETY: the functions keep the C contracts of their names for the memory of their backend: each
    // checks what it can, and needs of the rest what C callers promise.
    unsafe { builder.build() }
}

/// # Safety
/// `comm` is NULL or a live communicator of this backend.
unsafe fn fail_rank(comm: ncclComm_t, error: &Error) {
    // SAFETY: this function's contract.
    if let Ok(member) = unsafe { nccl::member(comm) } {
        member.fail(error);
    }
}
