//! `cargo xtask book`: the pages of `docs/` and the links to them, checked without building the book.
//!
//! The summary lists every page once, and every link leads to a file and to an anchor in it. So do
//! links in the documents outside of the book, and pages that source files name.

mod check;
mod links;
mod page;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::check_flag::CheckFlag;
use check::Checked;
use page::Page;

/// Names pages that are not there.
const TESTS: &str = "xtask/src/book/tests.rs";

pub(crate) fn run(args: &CheckFlag, sh: &Shell, root: &Path) -> Result<()> {
    let _root = sh.push_dir(root);
    let listed = cmd!(sh, "git ls-files --cached --others --exclude-standard")
        .quiet()
        .read()
        .context("pages and what links to them are looked for in the files that git knows")?;
    let files: BTreeSet<&str> = listed.lines().filter(|file| root.join(file).is_file()).collect();
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.ends_with(".md")) {
        pages.insert((*file).to_owned(), Page::read(root, file)?);
    }
    let mut checked = Checked::default();
    check::summary(&pages, &mut checked);
    check::pages(&pages, &files, &mut checked);
    for file in files.iter().filter(|file| !file.ends_with(".md") && **file != TESTS) {
        // What is no text names no page.
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        check::source(file, &text, &pages, &mut checked);
    }
    ensure!(checked.links > 0, "no link was found, so something is wrong with the search");
    println!(
        "book: {} pages with {} anchors, {} links; {} problems",
        checked.pages,
        checked.anchors,
        checked.links,
        checked.problems.len()
    );
    checked.problems.iter().for_each(|problem| println!("  {problem}"));
    if args.check && !checked.problems.is_empty() {
        bail!("{} problems with pages and links: see above", checked.problems.len());
    }
    Ok(())
}

/// The anchors of all pages below a folder, each with the file that has it.
pub(crate) fn anchors_below(root: &Path, folder: &str) -> Result<BTreeMap<String, String>> {
    let mut anchors = BTreeMap::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root.join(&folder))
            .with_context(|| format!("{}: cannot be listed", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("{}: cannot be listed", folder.display()))?;
            let path = folder.join(entry.file_name());
            if root.join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let file = path.to_string_lossy();
                let page = Page::read(root, &file)?;
                anchors.extend(page.anchors.into_iter().map(|anchor| (anchor, file.to_string())));
            }
        }
    }
    Ok(anchors)
}
