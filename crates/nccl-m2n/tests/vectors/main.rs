//! The test vectors of the M2N behaviour specification (M2N 8) that need no GPU.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "../cpu/mod.rs"]
mod cpu;
mod data;
mod errors;
mod groups;
mod lifecycle;
#[path = "../notation/mod.rs"]
mod notation;
mod pieces;
mod table;
