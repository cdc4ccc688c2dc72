//! Licenses of what is linked into the command line tool.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

use crate::files::write;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// None for a crate of this workspace.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// None for what is linked; build scripts and tests are not part of the program.
    kind: Option<String>,
}

/// Starts of names that license files have.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// Writes `licenses/NOTICE.md` and the texts that it names into an archive's folder.
pub(crate) fn write(sh: &Shell, program: &str, target: &str, into: &Path) -> Result<()> {
    let text = cmd!(sh, "cargo metadata --format-version 1 --locked --filter-platform {target}")
        .quiet()
        .read()
        .context("cargo metadata")?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
    let mut notice = String::from(
        "# What is inside\n\n\
         The libraries in `ep/` and `m2n/` are NVIDIA's nccl-extensions; their license is in this \
         folder. NCCL, where it is part of the archive, has its license in `nccl/licenses/`. \
         `bin/nccl-ext` is made of the crates of this project (`LICENSE` above), of Rust's standard \
         library, and of these crates:\n\n\
         | crate | version | license | texts in |\n|---|---|---|---|\n",
    );
    for package in linked(&metadata, program)? {
        let Package { name, version, license, manifest_path, .. } = package;
        let from = manifest_path.parent().context("a manifest lies in no folder")?;
        let folder = format!("rust/{name}-{version}");
        let texts = copy_texts(from, &into.join("licenses").join(&folder))?;
        let license = license.as_deref().unwrap_or("see its texts");
        ensure!(
            texts > 0 || package.license.is_some(),
            "{name} {version} has neither a license expression nor a text; ask its authors"
        );
        let place = if texts > 0 { format!("`{folder}/`") } else { "none in the crate".into() };
        writeln!(notice, "| {name} | {version} | {license} | {place} |")?;
    }
    let sysroot = cmd!(sh, "rustc --print sysroot").quiet().read()?;
    copy_texts(&Path::new(&sysroot).join("share/doc/rust"), &into.join("licenses/rust/std"))?;
    write::file(&into.join("licenses/NOTICE.md"), notice.as_bytes())
}

/// The crates of other projects that are linked into a program, sorted.
fn linked<'a>(metadata: &'a Metadata, program: &str) -> Result<Vec<&'a Package>> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let own = metadata.packages.iter().find(|p| p.name == program && p.source.is_none());
    let mut todo = vec![own.with_context(|| format!("no crate {program}"))?.id.as_str()];
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        let deps = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
        let linked = deps.iter().filter(|dep| dep.dep_kinds.iter().any(|k| k.kind.is_none()));
        todo.extend(linked.map(|dep| dep.pkg.as_str()));
    }
    let mut linked: Vec<&Package> =
        seen.iter().filter_map(|id| packages.get(id).copied()).collect();
    linked.retain(|package| package.source.is_some());
    linked.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(linked)
}

/// Copies the license files of a folder; how many there were.
fn copy_texts(from: &Path, to: &Path) -> Result<usize> {
    let mut texts = 0;
    for entry in std::fs::read_dir(from).into_iter().flatten().filter_map(|entry| entry.ok()) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_text = NAMES.iter().any(|start| name.to_uppercase().starts_with(start));
        if is_text && entry.path().is_file() {
            write::file(&to.join(&name), &std::fs::read(entry.path())?)?;
            texts += 1;
        }
    }
    Ok(texts)
}
