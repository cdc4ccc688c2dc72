//! Resharding tensors between two meshes of ranks: the safe API of NVIDIA's `libnccl_m2n`, and a
//! planner that proves a reshard before a byte moves.
//!
//! A [`Mesh`] is an interval of a communicator's ranks; a [`Layout`] lays a tensor over it, cut
//! along one dimension or copied. [`Runtime::reshard`] moves a tensor from one layout to another,
//! [`Runtime::group`] several at once. Every rank makes the same calls with the same two layouts.
//! What the library checks on one rank alone, or not at all, and answers with a hang or with stale
//! bytes, comes back as an [`Error`] on every rank: what all ranks share is checked by each of them
//! with the same [`rules()`], and what one rank alone knows is exchanged, as [`Agreement`] says.
//! [`plan`] tells beforehand who sends what to whom.
//!
//! A matrix from rows on two trainers to columns on two generators, on the CPU backend. The same
//! program runs on GPUs with a communicator of the native backend:
//!
//! ```
//! use nccl_ext_cpu::{CpuConfig, run_ranks};
//! use nccl_m2n::{
//!     Buffer, Comm, Config, DataType, DistTensor, DistTensorMut, Error, Layout, Mesh,
//!     Placement::Shard, Runtime, Stream,
//! };
//!
//! let results = run_ranks(4, &CpuConfig::new(), |comm: Comm| {
//!     let rows = Layout::from_global(Mesh::new(&[2], 0)?, &[Shard(0)], &[4, 4], DataType::Int32)?;
//!     let columns = rows.on(Mesh::new(&[2], 2)?, &[Shard(1)])?;
//!
//!     let runtime = Runtime::new(comm.backend(), &Config::new())?;
//!     // Each trainer holds two rows, each generator gets two columns.
//!     let first = comm.rank() as i32 * 8;
//!     let tile = Buffer::from_slice(&comm, &Vec::from_iter(first..first + 8))?;
//!     let mut columns_tile = Buffer::<i32>::zeroed(&comm, 8)?;
//!     let source = DistTensor::new(&tile, &rows); // looked at on ranks 0 and 1 only
//!     let mut destination = DistTensorMut::new(&mut columns_tile, &columns); // on 2 and 3
//!     runtime.reshard(&comm, &source, &mut destination, Stream::DEFAULT)?;
//!
//!     let columns_tile = columns_tile.to_vec(Stream::DEFAULT)?;
//!     match comm.rank() {
//!         2 => assert_eq!(columns_tile, [0, 1, 4, 5, 8, 9, 12, 13]),
//!         3 => assert_eq!(columns_tile, [2, 3, 6, 7, 10, 11, 14, 15]),
//!         _ => assert_eq!(columns_tile, [0; 8]),
//!     }
//!     runtime.finalize()?;
//!     Ok::<_, Error>(())
//! });
//! assert!(results.iter().all(Result::is_ok), "{results:?}");
//! ```
//!
//! Names follow the vendor's Python package in Rust spelling; searching the docs for a C name finds
//! its counterpart. Where a rule comes from is cited by section of the M2N specification in the
//! repository's book (`docs/src/spec/m2n`): M2N 2.1 #28c.
//!
//! # What is not here
//!
//! * Groups do not nest: aborting an inner one would abort the outer too (M2N 4.3).
//! * A group that other code began on the thread, through C, would record the calls made here; the
//!   library cannot be asked.
//! * The library's default handle is never used; [`finalize_default`] ends that of other code.
//! * The library has no function that tells its version; `Backend::library` has it from the staged
//!   manifest.

mod agreement;
mod config;
mod dist_tensor;
mod fabric;
mod group;
mod layout;
mod library;
mod mesh;
mod placement;
pub mod plan;
mod recording;
mod reshard_call;
mod rules;
mod runtime;
mod settings;
mod shape;
mod sharding;
mod window;

pub use config::{Agreement, Config};
pub use dist_tensor::{DistTensor, DistTensorMut};
pub use fabric::Fabric;
pub use group::Group;
pub use layout::Layout;
pub use mesh::{MAX_MESH_DIMS, Mesh};
pub use nccl_ext_core::{
    Access, Backend, Buffer, Comm, DataType, Device, DeviceBuffer, DeviceBufferMut, Element, Error,
    Event, MemorySpace, OwnedStream, PinnedBuffer, Refused, Result, Scope, Stream, UniqueId, Usage,
    Version, bf16, f16,
};
pub use placement::Placement;
pub use rules::{RuleInfo, all as rules};
pub use runtime::{Runtime, finalize_default, last_error};
pub use settings::{Buckets, CopyAlgorithm, Settings};
pub use shape::{MAX_TENSOR_DIMS, Shape};
pub use sharding::Sharding;
pub use window::Window;
