//! A backend without GPUs.
//!
//! Ranks are threads of one process and host memory is device memory. Streams are ignored: every
//! call is complete when it returns, except that a staged send copies and does not wait.
//! [`backend`] gives the same function tables as the native libraries do, so a program written
//! against `nccl-ep` or `nccl-m2n` runs on either; results follow the vendor's order and rounding
//! bit for bit where the GPU library is deterministic. The libraries' behaviour is written down in the
//! repository's book, `docs/src/spec`.
//!
//! ```
//! use nccl_ext_core::{Error, Reduction, Stream};
//! use nccl_ext_cpu::{CpuConfig, run_ranks};
//!
//! let sums = run_ranks(4, &CpuConfig::new(), |comm| {
//!     let mut sum = [0_i32];
//!     comm.all_reduce(&[comm.rank() as i32], &mut sum, Reduction::Sum, Stream::DEFAULT)?;
//!     Ok::<_, Error>(sum[0])
//! });
//! assert!(sums.into_iter().all(|sum| sum.is_ok_and(|sum| sum == 6)));
//! ```
//!
//! # Where it differs from the GPU libraries
//!
//! * Where the vendor's code aborts, throws, exits, traps or is undefined, this backend returns a
//!   code; [`last_refusal`] says which of these it would have been.
//! * A rank that waits for one that never comes gets an error after [`CpuConfig::timeout`]; one
//!   that waits for a rank that failed, panicked or left gets [`Error::PeerFailed`] at once.
//! * Where the GPU's order of rows is unspecified (low latency) rows come in the order of source
//!   rank and token.
//! * An update of a high-throughput handle in memory of the caller's leaves an image of the routing
//!   there, of which `ncclExtImportHandle` makes a handle again. A new handle on such memory that is
//!   neither imported nor updated is refused.
//! * In a low-latency group with masks a rank that left or failed is masked at once, without waiting
//!   for the time-out, which there replaces [`CpuConfig::timeout`]; a rank that finds a peer in
//!   another operation than its own is told, and does not take wrong rows.
//! * Resharding is PACK on one NVLink domain, with its limits and its choice of source replicas;
//!   what also needs a device-controlled network there (reversed meshes, fused groups, copies of a
//!   rank to itself, DIRECT, PIPE) works. There are no staging slots to run out of.
//! * Sides of a reshard that are not one global tensor, ranks that ask for different transfers, and
//!   tiles of two ranks that overlap in memory are `ncclInvalidArgument` on every rank, where the
//!   GPU library moves wrong bytes or waits for ever. A rank without its buffer fails all ranks.
//!
//! [`Error::PeerFailed`]: nccl_ext_core::Error::PeerFailed

// Bottom to top: `refusal`, `config`, `lock` -> `queue` (streams' work) -> `world` (where ranks
// meet) -> `entry` -> `nccl`, `driver` -> `ep`, `m2n` -> `backend` -> `ranks`. `cargo xtask modules` checks that arrows go one
// way.
mod backend;
mod config;
mod driver;
mod entry;
mod ep;
mod ids;
mod lock;
mod m2n;
mod nccl;
#[allow(dead_code, unused_imports)] // until all calls go through it
mod queue;
mod ranks;
mod refusal;
mod world;

pub use backend::{backend, deferred_backend};
pub use config::{CpuConfig, unique_id};
pub use ranks::{RankFailure, run_ranks};
pub use refusal::{FailureClass, last_refusal};
