//! `cargo xtask modules`: in every crate the arrows between modules go one way.
//!
//! # The rule
//!
//! * An **arrow** goes from the file that names an item to the file that defines it. Names are the
//!   paths in `use` and in code, also in the tokens of macros. A path through the name of a module
//!   or of an import counts like the whole path.
//! * A **re-export** (`pub use`, with any visibility) is followed to the definition and makes no
//!   arrow by itself, and neither do `mod` and a `use` of a module: they are signposts. So a
//!   `mod.rs` that only declares and re-exports depends on nothing. One that also defines what its
//!   children use must not use these children.
//! * Code under `#[cfg(test)]` does not count. Methods are not followed: who has a value has named
//!   its type, or got it from who did.
//! * **Files**: no arrows lead from a file over others back to it.
//! * **Rooms**: the same where everything below a module counts as one, at every level: from
//!   `ep/group/` over `ep/ll/` no arrow leads back to `ep/group/`, whatever the files. Who keeps
//!   this rule keeps the one of files.

mod circles;
mod names;
mod paths;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::check_flag::CheckFlag;
use source::Crate;

/// Crates that keep the rule, by their folders.
const KEPT: &[&str] = &[
    "crates/nccl-ep",
    "crates/nccl-ep-sys",
    "crates/nccl-ext",
    "crates/nccl-ext-core",
    "crates/nccl-ext-cpu",
    "crates/nccl-m2n-sys",
    "xtask",
];

/// Crates that are to keep it. `cargo xtask modules` lists what is in the way.
const NOT_YET: &[&str] = &["crates/nccl-ext-test", "crates/nccl-m2n"];

pub(crate) fn run(args: &CheckFlag, root: &Path) -> Result<()> {
    let others = if args.check { &[] } else { NOT_YET };
    let mut broken = 0;
    for folder in KEPT.iter().chain(others) {
        let files = read(&root.join(folder).join("src"))?;
        for entry in ["lib.rs", "main.rs"].map(PathBuf::from) {
            if !files.contains_key(&entry) {
                continue;
            }
            let parsed = Crate::parse(&entry, &files).with_context(|| format!("{folder}/src"))?;
            let mut circles = circles::of_files(&parsed);
            circles.extend(circles::of_rooms(&parsed));
            for circle in &circles {
                println!("{folder}/src: {circle}");
            }
            broken += circles.len();
        }
    }
    ensure!(
        broken == 0 || !args.check,
        "{broken} circles of modules; move what both sides need into a file that both may name"
    );
    Ok(())
}

/// The sources below `folder`, by their path in it.
fn read(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let list = std::fs::read_dir(&next).with_context(|| format!("{}", next.display()))?;
        for entry in list {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path);
                let text = text.with_context(|| format!("{}", path.display()))?;
                files.insert(path.strip_prefix(folder)?.to_owned(), text);
            }
        }
    }
    Ok(files)
}
