//! What the tests of this workspace share. It is not published.
//!
//! - [`stub`]: backends made of stub tables, which record the native calls that reach them.
//! - [`worlds`]: ranks on the CPU backend.
//! - [`cpu`]: raw calls of the CPU backend's tables, and C objects that own their memory.
//! - [`m2n_table`]: calls of libnccl_m2n with the code and words that come of them, for any library.
//! - [`m2n_vectors`]: which bytes arrive where, as the book has it.
//! - [`allocations`]: an allocator that counts.
//! - [`rows`]: tests made of tables, each row of which passes or fails by its own name.
//! - [`routing`], [`layout`]: fixtures, and what they mean, worked out without the crates' own
//!   arithmetic.
//! - [`child`]: tests in a process of their own.
//! - [`vendor`]: processes of their own for calls of the vendor's libraries, without a GPU.
//!
//! A crate names it as a dev-dependency by path and without a version, so that `cargo package`
//! leaves it out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests only")]

pub mod allocations;
pub mod child;
pub mod cpu;
pub mod layout;
pub mod m2n_table;
pub mod m2n_vectors;
pub mod routing;
pub mod rows;
pub mod stub;
#[cfg(target_os = "linux")]
pub mod vendor;
pub mod worlds;
