//! Compiles `guard.cc` for the feature `guard-cc`; without it there is nothing to build.

fn main() {
    println!("cargo::rerun-if-changed=src/guard/build.rs");
    println!("cargo::rerun-if-changed=src/guard/guard.cc");
    #[cfg(feature = "guard-cc")]
    guard_cc();
}

/// The symbol carries the version, so that two versions of this crate live side by side.
#[cfg(feature = "guard-cc")]
fn guard_cc() {
    let version = env!("CARGO_PKG_VERSION").replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let symbol = format!("nccl_ext_guard_{version}");
    println!("cargo::rustc-env=NCCL_EXT_GUARD={symbol}");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++11").file("src/guard/guard.cc");
    build.define("NCCL_EXT_GUARD", symbol.as_str()).compile(&symbol);
}
