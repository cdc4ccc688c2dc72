//! The two C libraries and the crates over them.

use super::unwrapped::{self, Entry};

/// A C library and the crate over it.
pub(super) struct Library {
    /// The C library's name.
    pub(super) name: &'static str,
    /// The safe crate's name in Rust.
    pub(super) crate_name: &'static str,
    pub(super) bindings: &'static str,
    pub(super) sources: &'static str,
    /// How C names of this library begin. A Rust alias that begins so must be one of them.
    pub(super) prefixes: &'static [&'static str],
    /// Macros of the header that bindings cannot hold.
    pub(super) macros: &'static [&'static str],
    pub(super) unwrapped: &'static [Entry],
}

pub(super) const LIBRARIES: &[Library] = &[EP, M2N];

const EP: Library = Library {
    name: "libnccl_ep",
    crate_name: "nccl_ep",
    bindings: "crates/nccl-ep-sys/src/bindings.rs",
    sources: "crates/nccl-ep/src",
    prefixes: &["ncclEp", "NCCL_EP_"],
    macros: &[],
    unwrapped: unwrapped::EP,
};

const M2N: Library = Library {
    name: "libnccl_m2n",
    crate_name: "nccl_m2n",
    bindings: "crates/nccl-m2n-sys/src/bindings.rs",
    sources: "crates/nccl-m2n/src",
    prefixes: &[
        "ncclM2n",
        "ncclReshard",
        "ncclMesh",
        "ncclDistTensor",
        "NCCL_M2N_",
        "NCCL_RESHARD_",
    ],
    macros: &["NCCL_RESHARD_SHARD"],
    unwrapped: unwrapped::M2N,
};
