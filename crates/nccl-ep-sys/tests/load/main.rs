//! Loading, over small C libraries that the test compiles.
//!
//! The dynamic linker reads its search path when a process starts, so each case runs in a child:
//! this test binary again, told by variables what to do and what to print.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod child;
mod cuda;
mod driver;
mod libraries;
mod named;
mod one_nccl;
mod search;

/// Not a test of its own: the cases, in a process that was started for one of them.
#[test]
fn child() {
    child::run();
}
