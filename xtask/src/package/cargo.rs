//! Cargo in a copy of the checkout: the command line tool and the packages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::native::REQUIRE;

/// The crate of the command line tool, and its program.
pub(crate) const PROGRAM: &str = "nccl-ext";

/// Cargo in the copy.
pub(crate) struct Build<'a> {
    pub(crate) sh: &'a Shell,
    pub(crate) copy: &'a Path,
    pub(crate) target: &'a Path,
}

impl Build<'_> {
    /// The command line tool, the same bytes wherever the copy lies.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        println!("package: cargo build --release -p {PROGRAM}");
        let mut flags = vec![format!("--remap-path-prefix={}=/source", self.copy.display())];
        flags.push(format!("--remap-path-prefix={}=/target", self.target.display()));
        flags.extend(
            cargo_home().map(|home| format!("--remap-path-prefix={}=/cargo", home.display())),
        );
        cmd!(self.sh, "cargo build --release --locked --package {PROGRAM}")
            .env("CARGO_TARGET_DIR", self.target)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
            .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
            .env(REQUIRE, "1")
            .env("NCCL_EXTENSIONS_NATIVE_DIR", self.copy.join("native"))
            .quiet()
            .run()
            .context("building the command line tool")?;
        Ok(self.target.join("release").join(PROGRAM))
    }

    /// A `.crate` file of every crate that is published. Cargo builds each from its own source.
    pub(crate) fn crates(&self) -> Result<Vec<PathBuf>> {
        println!("package: cargo package --workspace");
        let private = self.private()?;
        let exclude: Vec<String> = private.iter().map(|name| format!("--exclude={name}")).collect();
        let before = local_registries();
        let packaged = cmd!(self.sh, "cargo package --workspace --locked {exclude...}")
            .env("CARGO_TARGET_DIR", self.target)
            .env(REQUIRE, "1")
            .env("NCCL_EXTENSIONS_NATIVE_DIR", self.copy.join("native"))
            .quiet()
            .run();
        for left in local_registries().difference(&before) {
            let _ = std::fs::remove_dir_all(left);
        }
        packaged.context("packaging the crates")?;
        let mut crates: Vec<PathBuf> = std::fs::read_dir(self.target.join("package"))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "crate"))
            .collect();
        crates.sort();
        ensure!(!crates.is_empty(), "cargo package left no .crate file");
        Ok(crates)
    }

    /// Members of the workspace that are not published.
    fn private(&self) -> Result<Vec<String>> {
        let text = cmd!(self.sh, "cargo metadata --format-version 1 --no-deps --locked")
            .quiet()
            .read()
            .context("cargo metadata")?;
        let metadata: serde_json::Value = serde_json::from_str(&text)?;
        let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
        let private =
            packages.iter().filter(|p| p["publish"].as_array().is_some_and(Vec::is_empty));
        Ok(private.filter_map(|p| p["name"].as_str().map(str::to_owned)).collect())
    }
}

fn cargo_home() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home)
}

/// Where Cargo has unpacked packages of registries that are no server: their names have no host.
fn local_registries() -> BTreeSet<PathBuf> {
    let sources = cargo_home().map(|home| home.join("registry/src"));
    let entries = sources.into_iter().flat_map(|dir| dir.read_dir()).flatten();
    let entries = entries.filter_map(|entry| entry.ok());
    let local = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with('-'));
    local.map(|entry| entry.path()).collect()
}
