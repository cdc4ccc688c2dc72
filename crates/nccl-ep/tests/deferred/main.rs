//! The safe API where calls return before their work is done. It orders streams and memory by itself,
//! so no race is found, and results are those of the backend whose calls are complete.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod low_latency;
mod masks;
mod world;
