//! `cargo xtask citations`: everything that code and documents cite of the specification is in the
//! book.
//!
//! `docs/src/spec/index.md` says how a citation is written. All text that git knows is read: comments,
//! strings of code (the sources of rules are strings) and documents. A citation stands for headings,
//! rows or vectors, and each has an anchor in the pages of `docs/src/spec`.

mod citation;
mod joined;
mod loose;
mod range;
mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::book;
use crate::check_flag::CheckFlag;
use joined::Joined;

/// The pages that are cited.
pub(crate) const SPECIFICATION: &str = "docs/src/spec";

/// Not read: the pages themselves, whose links `cargo xtask book` checks, and tests, which cite what is
/// not there.
const LEFT_OUT: &[&str] =
    &["docs/src/spec/", "docs/src/SUMMARY.md", "xtask/src/citations/tests.rs"];

/// What is read: source, documents and what they are built by.
const EXTENSIONS: &[&str] = &["rs", "md", "toml", "sh", "py", "yml", "stderr", "txt"];

/// What a file cites, and what is wrong with it.
#[derive(Debug, Default)]
struct Found {
    citations: usize,
    places: usize,
    problems: Vec<String>,
}

pub(crate) fn run(args: &CheckFlag, sh: &Shell, root: &Path) -> Result<()> {
    let anchors: BTreeSet<String> = book::anchors_below(root, SPECIFICATION)?.into_keys().collect();
    let _root = sh.push_dir(root);
    // Tracked files, and new ones that git does not ignore.
    let files = cmd!(sh, "git ls-files --cached --others --exclude-standard")
        .quiet()
        .read()
        .context("citations are looked for in the files that git knows")?;
    let mut all = Found::default();
    for file in files.lines().filter(|file| is_read(file)) {
        // A file that is deleted and not yet committed is still listed.
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        let found = read(file, &text, &anchors);
        all.citations += found.citations;
        all.places += found.places;
        all.problems.extend(found.problems);
    }
    ensure!(all.citations > 0, "no citation was found, so something is wrong with the search");
    println!(
        "citations: {} citations of {} places; {} without a place in {SPECIFICATION}",
        all.citations,
        all.places,
        all.problems.len()
    );
    all.problems.iter().for_each(|problem| println!("  {problem}"));
    if args.check && !all.problems.is_empty() {
        bail!(
            "{} citations lead nowhere; correct them, or add the heading or row: {SPECIFICATION}/\
             index.md says how they are written",
            all.problems.len()
        );
    }
    Ok(())
}

/// The anchors that a citation stands for, where the whole text is one.
pub(crate) fn anchors_of(text: &str) -> Vec<String> {
    match &mut citation::all(text)[..] {
        [only] if (only.start, only.end) == (0, text.len()) => std::mem::take(&mut only.anchors),
        _ => Vec::new(),
    }
}

fn is_read(file: &str) -> bool {
    let left_out = LEFT_OUT.iter().any(|start| file.starts_with(start));
    let extension = Path::new(file).extension();
    !left_out
        && extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

/// Everything that one file cites.
fn read(file: &str, text: &str, anchors: &BTreeSet<String>) -> Found {
    let joined = Joined::new(text);
    let mut found = Found::default();
    let citations = citation::all(joined.text());
    for citation in &citations {
        found.citations += 1;
        found.places += citation.anchors.len();
        let line = joined.line(citation.start);
        for anchor in citation.anchors.iter().filter(|anchor| !anchors.contains(*anchor)) {
            found.problems.push(format!(
                "{file}:{line}: \"{}\": the book has no `{anchor}`",
                citation.text(joined.text())
            ));
        }
    }
    if Path::new(file).extension().is_some_and(|extension| extension == "rs") {
        for (at, id) in loose::in_comments(text, &citations, anchors) {
            let line = joined.line(at);
            found.problems.push(format!(
                "{file}:{line}: \"{id}\" of what? Write `EP vector {id}`, `M2N vector {id}` or \
                 `Case {id}`"
            ));
        }
    }
    found
}
