//! What the README promises of compilers and platforms, and what only another compiler builds.

use std::path::Path;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use super::steps::Steps;

/// Platforms besides the one that this runs on. They are checked, not run.
const TARGETS: &[&str] = &["aarch64-unknown-linux-gnu", "x86_64-apple-darwin"];

/// Checks the workspace with the oldest compiler that it promises to build with.
pub(super) fn oldest_compiler(sh: &Shell, root: &Path, steps: &Steps) -> Result<()> {
    let manifest = sh.read_file(root.join("Cargo.toml")).context("the workspace has a manifest")?;
    let version = rust_version(&manifest)?;
    if !listed(sh, &["toolchain", "list"], &version)? {
        steps.next(&format!("rustup toolchain install {version} --profile minimal"));
        cmd!(sh, "rustup toolchain install {version} --profile minimal --no-self-update")
            .quiet()
            .run()?;
    }
    steps.next(&format!("rustup run {version} cargo check --workspace --all-targets"));
    cmd!(sh, "rustup run {version} cargo check --workspace --all-targets").quiet().run()?;
    Ok(())
}

/// Checks the crates, not xtask, whose C dependencies need each platform's C compiler.
pub(super) fn other_targets(sh: &Shell, steps: &Steps) -> Result<()> {
    for &target in TARGETS {
        if !listed(sh, &["target", "list", "--installed"], target)? {
            steps.next(&format!("rustup target add {target}"));
            cmd!(sh, "rustup target add {target}").quiet().run()?;
        }
        steps.next(&format!("cargo check --all-targets --target {target}, warnings denied"));
        // Clippy would call a cast superfluous that only this platform does not need.
        let check = cmd!(sh, "cargo check --all-targets --target {target}");
        check.env("RUSTFLAGS", "-Dwarnings").quiet().run()?;
    }
    Ok(())
}

/// Builds and tests the exception guard that is written in C++.
pub(super) fn guard_in_cpp(sh: &Shell, steps: &Steps) -> Result<()> {
    steps.next("cargo clippy and test -p nccl-ext-core --features guard-cc");
    let features = ["-p", "nccl-ext-core", "--features", "guard-cc"];
    cmd!(sh, "cargo clippy --all-targets {features...} -- -D warnings").quiet().run()?;
    cmd!(sh, "cargo test {features...}").quiet().run()?;
    Ok(())
}

/// Whether a list of rustup has a line that begins so.
fn listed(sh: &Shell, list: &[&str], name: &str) -> Result<bool> {
    let listed = cmd!(sh, "rustup {list...}").quiet().read().context(
        "compilers and targets are installed with rustup; install it from https://rustup.rs",
    )?;
    let is_it = |line: &str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    };
    Ok(listed.lines().any(is_it))
}

fn rust_version(manifest: &str) -> Result<String> {
    let manifest: toml::Table = toml::from_str(manifest).context("Cargo.toml is no TOML")?;
    let version = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("package"))
        .and_then(|package| package.get("rust-version"))
        .and_then(toml::Value::as_str);
    version.map(str::to_owned).context("Cargo.toml: [workspace.package] has no rust-version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_compiler_is_the_one_that_the_manifest_promises() {
        let manifest = "[workspace.package]\nrust-version = \"1.88\"";
        assert_eq!(rust_version(manifest).unwrap(), "1.88");
        let error = rust_version("[workspace]").unwrap_err();
        assert!(error.to_string().contains("has no rust-version"), "{error}");
    }
}
