//! EP 9.6: low latency.

mod expert_major;
mod limits;
mod rank_major;
mod staged;
