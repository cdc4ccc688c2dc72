//! The safe API on the CPU backend, whose ranks are threads of the test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod alignment;
mod allocator;
mod auto_traits;
mod backends;
mod destruction;
mod devices;
mod disagreement;
mod forwarded_scales;
mod handle_memory;
mod ids;
mod ids_on_a_device;
mod limits;
mod low_latency_rounds;
mod masks;
mod order;
mod plan;
mod received;
mod round_trip;
mod snapshot;
mod snapshot_streams;
mod staged;
mod streams;
mod support;
