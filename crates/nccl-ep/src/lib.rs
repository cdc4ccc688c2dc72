//! Mixture-of-experts dispatch and combine over expert-parallel ranks: the safe API of NVIDIA's
//! `libnccl_ep`.
//!
//! A [`Group`] is made by all ranks of a communicator, a [`Handle`] by each rank for one layout;
//! [`Handle::update`] takes a step's routing and gives a [`Step`], which dispatches tokens to their
//! experts' ranks and combines the results. Misuse that the library answers with an abort, a GPU
//! trap, a hang or silent corruption comes back as an [`Error`] that names the argument, the rule
//! and the numbers; [`rules`] lists them all. A citation such as "EP 3.5.2" is a section of the
//! repository's book, `docs/src/spec/ep`.
//!
//! Two ranks on the CPU backend, each the owner of two experts. The same program runs on GPUs with
//! [`Buffer`]s as memory and a communicator of the native backend:
//!
//! ```
//! use nccl_ep::*;
//! use nccl_ext_cpu::{CpuConfig, run_ranks};
//!
//! const HIDDEN: usize = 512;
//! let results = run_ranks(2, &CpuConfig::new(), |comm: Comm| {
//!     let config = GroupConfig::new()
//!         .algorithm(Algorithm::LowLatency)
//!         .num_experts(4)
//!         .max_dispatch_tokens_per_rank(8)
//!         .max_token_bytes(1024);
//!     let group = Group::create(&comm, &config)?;
//!     let options = HandleConfig::new();
//!     let mut handle = group.init_handle(Layout::ExpertMajor, &options, TopK::N(2), None)?;
//!
//!     // One token, to experts 0 (on rank 0) and 3 (on rank 1).
//!     let (topk_idx, weights) = ([0_i64, 3], [0.25_f32, 0.75]);
//!     let tokens = vec![bf16::from_f32(1.0 + comm.rank() as f32); HIDDEN];
//!     let mut step = handle.update(Tensor::new(&topk_idx, &[1, 2])?, None, Stream::DEFAULT)?;
//!
//!     // [local experts, ranks * max tokens, hidden], as `recv_spec` says.
//!     let mut received = vec![bf16::ZERO; 2 * 16 * HIDDEN];
//!     let mut counters = [0_i32; 2];
//!     let inputs = DispatchInputs::new(Tensor::new(&tokens, &[1, HIDDEN])?);
//!     let rows = TensorMut::new(&mut received, &[2, 16, HIDDEN])?;
//!     let mut info = LayoutInfo::new().expert_counters(TensorMut::new(&mut counters, &[2])?);
//!     let mut outputs = DispatchOutputs::new(rows);
//!     let plain = DispatchConfig::new();
//!     step.dispatch(&inputs, &mut outputs, Some(&mut info), &plain, Stream::DEFAULT)?;
//!     assert_eq!(counters, [[2, 0], [0, 2]][comm.rank()]);
//!
//!     // The experts would work on `received` here. Combine weighs their rows and adds them up.
//!     let mut combined = vec![bf16::ZERO; HIDDEN];
//!     let inputs = CombineInputs::new(Tensor::new(&received, &[2, 16, HIDDEN])?)
//!         .routing_weights(Tensor::new(&weights, &[1, 2])?);
//!     let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[1, HIDDEN])?);
//!     step.combine(&inputs, &mut outputs, &CombineConfig::new(), Stream::DEFAULT)?;
//!     assert_eq!(combined, tokens);
//!
//!     drop(step);
//!     handle.destroy()?;
//!     group.destroy()?;
//!     comm.destroy()?;
//!     Ok::<_, Error>(())
//! });
//! assert!(results.iter().all(Result::is_ok));
//! ```
//!
//! # Errors
//!
//! Every call can fail with these; its docs list the others.
//!
//! - [`Error::Native`]: the library returned a code. [`Error::Driver`]: the CUDA driver did.
//! - [`Error::Exception`]: the library threw a C++ exception. Its state is unknown, so that every
//!   later call of the group is [`Error::Poisoned`].
//! - [`Error::Diverged`]: an earlier error kept this rank from a collective that its peers are in.
//!   The group cannot be used any more; the error carries the first one.
//! - [`Error::PeerFailed`], [`Error::RankGone`], [`Error::Timeout`]: another rank failed, left or did
//!   not come. Only the CPU backend finds out.
//!
//! [`Error::Invalid`] is different: a rule was broken and nothing was called. It carries the name of
//! its row in [`rules`], or in core's for memory and streams, which every call refuses that are not
//! on its communicator's device.
//!
//! # Words that `nccl-m2n` uses too
//!
//! | Word | Here | In `nccl-m2n` |
//! |---|---|---|
//! | `Placement` | which rank owns which expert | where a dimension of a tensor lies in a mesh |
//! | `Layout` | how received rows lie in an output | how a tensor is distributed over ranks |
//! | `Group` | ranks that exchange tokens | reshards that the library fuses |
//! | `Buffer` | [`Buffer`]: memory of a backend; [`plan::Buffer`]: the size of an allocation | memory of a backend |
//!
//! # Names
//!
//! Names follow the vendor's Python package in Rust spelling; searching the docs for a C name finds
//! its counterpart.

mod agreement;
mod allocator;
mod args;
mod config;
mod enums;
mod environment;
mod experts;
mod geometry;
mod group;
mod handle;
mod mask;
mod mode;
pub mod plan;
mod received;
mod recv_spec;
mod rules;
mod step;
mod tensor;
mod view;

pub use allocator::DeviceAllocator;
pub use args::{CombineInputs, CombineOutputs, DispatchInputs, DispatchOutputs, LayoutInfo};
pub use config::{CombineConfig, DispatchConfig, GroupConfig, HandleConfig};
pub use enums::{
    Algorithm, DispatchQuantizationRecipe, ExpertIdKind, Layout, OverflowPolicy, PassDir, TopK,
    Validation, ZeroCopyMode,
};
pub use experts::{GlobalExpert, LocalExpert, Placement};
pub use group::Group;
pub use handle::{Handle, HandleMemory, HandleSnapshot, HandleState};
pub use mode::Mode;
pub use nccl_ext_core::{
    Access, Backend, Buffer, Comm, DataType, Device, DeviceBuffer, DeviceBufferMut, Element, Error,
    Event, MemorySpace, OwnedStream, PinnedBuffer, Reduction, Refused, Result, Scope, Stream,
    UniqueId, Usage, bf16, f16,
};
pub use received::{ReceivedExpert, ReceivedExperts};
pub use recv_spec::{Presence, RecvSpec, TensorSpec};
pub use rules::{RuleInfo, all as rules};
pub use step::Step;
pub use tensor::{Tensor, TensorMut};
pub use view::{MAX_DIMS, Shape};

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
