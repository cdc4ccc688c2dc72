//! libnccl_ep on the CPU backend, by its C table.
//!
//! What depends on the environment of the process is in `tests/ep_environment`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod arguments;
mod eager;
mod ht_expert_major;
mod ht_expert_major_modes;
mod ht_flat;
mod ht_flat_sums;
mod ht_handle_memory;
mod ht_streams;
mod ht_windows;
mod import;
mod low_latency;
mod masks;
mod out_of_step;
mod overflow;
mod routing_model;
mod scales;
