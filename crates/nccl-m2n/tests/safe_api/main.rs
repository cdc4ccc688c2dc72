//! The safe API on the CPU backend, whose ranks are threads of the test, and over stub tables.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod agreement;
mod alignment;
mod auto_traits;
#[path = "../common/mod.rs"]
mod common;
mod deferred;
mod devices;
mod divergence;
mod extremes;
mod groups;
mod handles;
mod native_calls;
mod native_groups;
mod order;
mod properties;
mod refusals;
mod stub_runtime;
