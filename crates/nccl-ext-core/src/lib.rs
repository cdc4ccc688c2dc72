//! What `nccl-ep` and `nccl-m2n` share.
//!
//! * [`Backend`]: the function tables of NCCL, the CUDA driver and the extension libraries, behind
//!   one `Copy` handle. The native libraries are one backend, the CPU implementation another, a
//!   test's stub a third; nothing above this seam knows which one it has.
//! * [`Comm`], [`Stream`], [`Event`], [`Buffer`] and the [`DeviceBuffer`] traits.
//! * [`Error`], whose messages name argument, rule, expected and found.
//! * [`loader`]: opening the native libraries with every attempt on record.
//!
//! Nothing here prints, exits or panics, and nothing needs CUDA to build.

#[cfg(all(feature = "cu12", feature = "cu13"))]
compile_error!(
    "nccl-ext-core: the features `cu12` and `cu13` are both on, and each sets the default CUDA \
     major. Only a final binary may turn one on: look for the crates that do with `cargo tree -e \
     features -i nccl-ext-core`, and choose at run time with NCCL_EXTENSIONS_CUDA instead."
);

pub mod backend;
pub mod binding;
mod buffer;
mod callback;
mod collectives;
mod comm;
mod data_type;
mod deadline;
pub mod device;
pub mod driver;
pub mod env_value;
mod error;
mod event;
pub mod guard;
mod host_memory;
pub mod ids;
pub mod jit;
pub mod loader;
mod memory;
mod order;
mod out_of_step;
mod pinned;
mod place;
mod rank_words;
pub mod raw;
mod raw_buffer;
pub mod rules;
mod shape;
mod stream;
#[cfg(test)]
mod stub;
mod usage;
mod version;

pub use backend::{Backend, LibraryInfo, MemorySpace};
pub use buffer::Buffer;
pub use callback::inside_callback;
pub use collectives::Reduction;
pub use comm::{Comm, UniqueId};
pub use data_type::{DataType, Element};
pub use device::Device;
pub use error::{CudaSide, Error, LoadAttempt, RacingUse, Refused, Result, Scope, result_name};
pub use event::Event;
pub use half::{bf16, f16};
pub use jit::JitEnv;
pub use memory::{DeviceBuffer, DeviceBufferMut};
pub use order::LastUse;
pub use out_of_step::OutOfStep;
pub use pinned::PinnedBuffer;
pub use rank_words::RankWords;
pub use raw_buffer::RawBuffer;
pub use shape::Shape;
pub use stream::{OwnedStream, Stream};
pub use usage::{Access, LatestUse, Usage, Use};
pub use version::{VERSION, Version};
