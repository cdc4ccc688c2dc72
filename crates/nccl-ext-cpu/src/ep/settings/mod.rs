//! What groups and handles were created with, and what follows from it.

mod geometry;
mod group;
mod handle;
mod limits;

pub(super) use geometry::{ht_handle_bytes, ll_buffer, ll_groups, ll_handle_bytes, ll_warps};
pub(super) use group::{Algorithm, EmMode, Settings, resolve};
pub(super) use handle::{HandleSettings, Layout, known_layout};
pub(super) use limits::{
    check_budget, check_groups, check_high_throughput_topk, check_low_latency_topk,
};
