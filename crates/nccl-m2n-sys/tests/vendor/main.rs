//! The vendor's own library, without a GPU (tier 2).
//!
//! The table of calls that the CPU backend's tests run is put to NVIDIA's `libnccl_m2n.so`, over a
//! stand-in for the driver that fails every call. What the table says the host decides must come
//! out as written there; any other row must get as far as the first CUDA call, and no farther. So a
//! row that is marked wrongly fails, whichever way.
//!
//! Every case has a process of its own, this binary again, as in the tests of `nccl-ep-sys`: the
//! dynamic linker reads its search path when a process starts, and an epoch of the library and its
//! environment are the whole process's.
//!
//! Needs `native/` as `cargo xtask stage-native --from pypi:0.1.0 --with-nccl` leaves it, and `cc`.
//! Without them the cases are skipped, and fail with `NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS=1`.

#![cfg_attr(
    target_os = "linux",
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")
)]

#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod loading;
#[cfg(target_os = "linux")]
mod rows;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    nccl_ext_test::vendor::main(cases::NEEDS, cases::all, cases::run_in_child)
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("vendor: skipped, the vendor's libraries exist for Linux alone");
}
