//! The vendor's own libraries, without a GPU (tier 2).
//!
//! What NVIDIA's `libnccl_ep.so.0` decides before it touches CUDA is decided here by the library
//! itself, over a stand-in for the driver that fails every call. The same table of calls runs
//! against the CPU backend, which must agree.
//!
//! Every case has a process of its own, this binary again: the dynamic linker reads its search path
//! when a process starts, two NCCLs must not meet in one, and some calls end the process. What a
//! library prints there is shown when the case fails.
//!
//! Needs `native/` as `cargo xtask stage-native --from pypi:0.1.0 --with-nccl` leaves it, and `cc`.
//! Without them the vendor's cases are skipped, and fail with
//! `NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS=1`. Those of the CPU backend always run.

#![cfg_attr(
    target_os = "linux",
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")
)]

#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod cpu;
#[cfg(target_os = "linux")]
mod fixture;
#[cfg(target_os = "linux")]
mod loading;
#[cfg(target_os = "linux")]
mod rows;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod thread;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    nccl_ext_test::vendor::main(cases::NEEDS, cases::all, cases::run_in_child)
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("vendor: skipped, the vendor's libraries exist for Linux alone");
}
