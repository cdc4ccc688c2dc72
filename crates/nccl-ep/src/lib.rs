//! Mixture-of-experts dispatch and combine over expert-parallel ranks: the safe API of NVIDIA's
//! `libnccl_ep`.
//!
//! A [`Group`] is made by all ranks of a communicator, a [`Handle`] by each rank for one layout;
//! [`Handle::update`] takes a step's routing and gives a [`Step`], which dispatches tokens to their
//! experts' ranks and combines the results. Misuse that the library answers with an abort, a GPU
//! trap, a hang or silent corruption comes back as an [`Error`] that names the argument, the rule
//! and the numbers; [`rules`] lists them all.
//!
//! Names follow the vendor's Python package in Rust spelling; searching the docs for a C name finds
//! its counterpart.

mod agreement;
mod args;
mod config;
mod enums;
mod experts;
mod geometry;
mod group;
mod handle;
mod recv_spec;
mod rules;
mod step;
mod tensor;

#[cfg(test)]
extern crate self as nccl_ep;
#[cfg(test)]
#[path = "../tests/stub/mod.rs"]
mod stub;

pub use args::{CombineInputs, CombineOutputs, DispatchInputs, DispatchOutputs, LayoutInfo};
pub use config::{CombineConfig, DispatchConfig, GroupConfig, HandleConfig};
pub use enums::{Algorithm, ExpertIdKind, Layout, OverflowPolicy, PassDir, TopK, ZeroCopyMode};
pub use experts::{GlobalExpert, LocalExpert, Placement};
pub use group::Group;
pub use handle::{Handle, HandleMemory};
pub use nccl_ext_core::{
    Backend, Buffer, Comm, DataType, DeviceBuffer, DeviceBufferMut, Element, Error, MemorySpace,
    Refused, Result, Scope, Stream, UniqueId, bf16, f16,
};
pub use recv_spec::{Presence, RecvSpec, TensorSpec};
pub use rules::{RuleInfo, all as rules};
pub use step::Step;
pub use tensor::{MAX_DIMS, Shape, Tensor, TensorMut};

/// The version of the libnccl_ep behind a backend.
///
/// # Errors
/// [`Error::Unsupported`] when the backend has none.
#[doc(alias = "ncclEpGetVersion")]
pub fn lib_version(backend: Backend) -> Result<nccl_ext_core::Version> {
    backend.extension::<nccl_ep_sys::EpApi>()?;
    backend.library(nccl_ep_sys::LIBRARY).map(|library| library.version).ok_or_else(|| {
        Error::Unsupported {
            feature: "the library's version",
            library: backend.name().into(),
            found: "a backend made without library information".into(),
            needs: "nccl_ep_sys::from_table or load".into(),
        }
    })
}
