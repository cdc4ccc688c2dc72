//! libnccl_ep's table where calls return before their work is done. Nothing orders these calls but
//! what a test writes down: the safe layer is not there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod low_latency;
mod tensor;
mod world;
