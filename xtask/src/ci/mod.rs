//! `cargo xtask ci`: everything that a change must pass, in the order of what fails fastest.

mod steps;
mod toolchains;

use std::path::Path;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use self::steps::Steps;
use crate::check_flag::CheckFlag;
use crate::native::{RELEASE, REQUIRE, stage};
use crate::verify::staged_tree::{self, Extent};
use crate::{api_map, book, citations, codegen, modules, rules};

/// Feature sets that the workspace is checked with, each as `--features` takes it. Not
/// `--all-features`: some features exclude each other.
const FEATURE_SETS: &[&str] =
    &["", "nccl-ep/serde,nccl-m2n/serde", "nccl-ext-core/cu12", "nccl-ext-core/cu13"];

pub(crate) fn run(sh: &Shell, root: &Path) -> Result<()> {
    let steps = Steps::new();
    sh.change_dir(root);
    steps.next("cargo fmt --all --check");
    cmd!(sh, "cargo fmt --all --check").quiet().run().context("run `cargo fmt --all`")?;

    steps.next("cargo xtask book --check");
    book::run(&CheckFlag::SET, sh, root)?;
    steps.next("cargo xtask citations --check");
    citations::run(&CheckFlag::SET, sh, root)?;

    for features in FEATURE_SETS {
        let flags: &[&str] = if features.is_empty() { &[] } else { &["--features", features] };
        steps.next(&format!("cargo clippy --workspace --all-targets {}", flags.join(" ")));
        cmd!(sh, "cargo clippy --workspace --all-targets {flags...} -- -D warnings")
            .quiet()
            .run()?;
    }

    steps.next("cargo doc --workspace --no-deps, warnings denied");
    let doc = cmd!(sh, "cargo doc --workspace --no-deps").env("RUSTDOCFLAGS", "-Dwarnings");
    doc.quiet().run()?;

    steps.next("cargo xtask api-map --check");
    api_map::run(&CheckFlag::SET, root)?;

    steps.next("cargo xtask rules --check");
    rules::run(&CheckFlag::SET, sh, root)?;

    steps.next("cargo xtask modules --check");
    modules::run(&CheckFlag::SET, root)?;

    toolchains::other_targets(sh, &steps)?;
    toolchains::oldest_compiler(sh, root, &steps)?;

    // Before the tests: those of the vendor's libraries need the tree.
    steps.next("cargo xtask verify native");
    if !staged_tree::report(&root.join("native"), Extent::Parts).problems.is_empty() {
        steps.next(&format!("cargo xtask stage-native --from {RELEASE} --with-nccl"));
        stage::run(&stage::Args::whole(RELEASE)?, sh, root)?;
    }
    steps.next("cargo xtask codegen --check");
    codegen::run(&codegen::Args::check(), sh, root)?;

    // The tree is there now, so tests that need it have no reason to be skipped.
    steps.next(&format!("cargo test --workspace, with {REQUIRE}=1"));
    cmd!(sh, "cargo test --workspace").env(REQUIRE, "1").quiet().run()?;
    toolchains::guard_in_cpp(sh, &steps)?;
    steps.next("everything passed");
    Ok(())
}
