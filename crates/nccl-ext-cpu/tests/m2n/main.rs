//! libnccl_m2n on the CPU backend, by its C table.
//!
//! Single calls and their texts are in `tests/m2n_table`; what depends on the environment of the
//! process is in `tests/m2n_epochs`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod deferred;
mod disagreement;
mod groups;
mod random_meshes;
mod reshards;
