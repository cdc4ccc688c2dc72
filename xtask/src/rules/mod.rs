//! `cargo xtask rules`: the page with every rule of the crates, as `nccl-ext rules --markdown` prints
//! it, with links from the rules to the specification.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::check_flag::CheckFlag;
use crate::files::generated;
use crate::{book, citations};

const PAGE: &str = "docs/src/rules.md";

/// What the paths of the specification are relative to, seen from the page.
const PAGES: &str = "docs/src/";

pub(crate) fn run(args: &CheckFlag, sh: &Shell, root: &Path) -> Result<()> {
    let anchors = book::anchors_below(root, citations::SPECIFICATION)?;
    let _root = sh.push_dir(root);
    let tables = cmd!(sh, "cargo run --quiet --package nccl-ext -- rules --markdown")
        .quiet()
        .read()
        .context("the tool lists the rules")?;
    let lines = tables.lines().map(|line| linked(line, &anchors) + "\n");
    let text: String = lines.collect();
    generated::Page { file: PAGE, task: "rules", of: "the crates' rules" }
        .write(root, &text, args.check)
}

/// A line of the page; in a row of a table, the source leads to where the book has it.
fn linked(line: &str, anchors: &BTreeMap<String, String>) -> String {
    let row = line.strip_suffix(" |").and_then(|row| row.rsplit_once(" | "));
    let Some((before, source)) = row else { return line.to_owned() };
    format!("{before} | {} |", link(source, anchors))
}

/// A source with links. A list of citations has one for each of them.
fn link(source: &str, anchors: &BTreeMap<String, String>) -> String {
    if let Some(page) = source.strip_prefix("book ") {
        return format!("[{source}]({page})");
    }
    let cited = citations::anchors_of(source);
    let to = |words: &str, anchor: &String| {
        let file = anchors.get(anchor).map(|file| file.strip_prefix(PAGES).unwrap_or(file));
        file.map_or_else(|| words.to_owned(), |file| format!("[{words}]({file}#{anchor})"))
    };
    let words: Vec<&str> = source.split(", ").collect();
    match &cited[..] {
        [] => source.to_owned(),
        all if all.len() == words.len() => {
            let links = words.iter().zip(all).map(|(words, anchor)| to(words, anchor));
            links.collect::<Vec<_>>().join(", ")
        }
        // A range: to where it begins.
        [first, ..] => to(source, first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_lead_to_the_book() {
        let place = |anchor: &str, file: &str| (anchor.to_owned(), format!("docs/src/{file}"));
        let anchors = BTreeMap::from([
            place("ep-4.5-21", "spec/ep/04.md"),
            place("ep-8", "spec/ep/08.md"),
            place("ep-2.1-21", "spec/ep/02.md"),
        ]);
        for (source, expected) in [
            ("EP 4.5 #21", "[EP 4.5 #21](spec/ep/04.md#ep-4.5-21)"),
            ("EP 4.5 #21, 8", "[EP 4.5 #21](spec/ep/04.md#ep-4.5-21), [8](spec/ep/08.md#ep-8)"),
            ("EP 2.1 #21 to #24", "[EP 2.1 #21 to #24](spec/ep/02.md#ep-2.1-21)"),
            ("EP 9", "EP 9"),
            ("NCCL ncclBroadcast", "NCCL ncclBroadcast"),
            ("book native.md", "[book native.md](native.md)"),
        ] {
            let row = linked(&format!("| `a.b` | `c` | d | all ranks | {source} |"), &anchors);
            assert_eq!(row, format!("| `a.b` | `c` | d | all ranks | {expected} |"));
        }
        assert_eq!(linked("# Rules", &anchors), "# Rules");
    }
}
