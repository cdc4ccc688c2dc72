//! What is wrong with pages and links.

use std::collections::{BTreeMap, BTreeSet};

use super::links::{self, Target};
use super::page::{PAGES, Page, SUMMARY};

/// What was looked at, and what is wrong.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) pages: usize,
    pub(super) anchors: usize,
    pub(super) links: usize,
    pub(super) problems: Vec<String>,
}

impl Checked {
    fn problem(&mut self, file: &str, line: usize, what: &str) {
        self.problems.push(format!("{file}:{line}: {what}"));
    }
}

/// The summary lists each page of the book once.
pub(super) fn summary(pages: &BTreeMap<String, Page>, checked: &mut Checked) {
    let Some(summary) = pages.get(SUMMARY) else {
        checked.problem(SUMMARY, 1, "is missing; it lists the pages of the book");
        return;
    };
    let mut listed = BTreeSet::new();
    for link in &summary.links {
        if let Target::Inside { file, .. } = Target::of(SUMMARY, &link.target)
            && !listed.insert(file)
        {
            checked.problem(SUMMARY, link.line, &format!("lists {} twice", link.target));
        }
    }
    let folder = format!("{PAGES}/");
    for file in pages.keys().filter(|file| file.starts_with(&folder) && *file != SUMMARY) {
        checked.pages += 1;
        if !listed.contains(file) {
            checked.problem(file, 1, &format!("is not listed in {SUMMARY}"));
        }
    }
}

/// Every link of a page leads somewhere.
pub(super) fn pages(pages: &BTreeMap<String, Page>, files: &BTreeSet<&str>, checked: &mut Checked) {
    for (file, page) in pages {
        checked.anchors += page.anchors.len();
        if file.starts_with(PAGES) {
            for (line, problem) in &page.problems {
                checked.problem(file, *line, problem);
            }
        }
        for link in &page.links {
            checked.links += 1;
            let target = Target::of(file, &link.target);
            if let Some(problem) = wrong(&target, &link.target, pages, files) {
                checked.problem(file, link.line, &problem);
            } else if leaves_the_book(file, &target) {
                checked.problem(
                    file,
                    link.line,
                    &format!("{} is no page of the book, so the built book lacks it", link.target),
                );
            }
        }
    }
}

fn wrong(
    target: &Target,
    written: &str,
    pages: &BTreeMap<String, Page>,
    files: &BTreeSet<&str>,
) -> Option<String> {
    let Target::Inside { file, anchor } = target else {
        let outside = *target == Target::Outside;
        return outside.then(|| format!("{written} leads out of the repository"));
    };
    let folder = format!("{file}/");
    if !files.contains(file.as_str()) && !files.iter().any(|known| known.starts_with(&folder)) {
        return Some(format!("{written} leads to no file: there is no {file}"));
    }
    let anchor = anchor.as_ref()?;
    let known = pages.get(file).is_some_and(|page| page.anchors.contains(anchor));
    (!known).then(|| format!("{written} leads to no heading: {file} has no `#{anchor}`"))
}

fn leaves_the_book(from: &str, target: &Target) -> bool {
    let in_book = |file: &str| file.starts_with(&format!("{PAGES}/"));
    matches!(target, Target::Inside { file, .. } if in_book(from) && !in_book(file))
}

/// The pages that a source file names exist.
pub(super) fn source(
    file: &str,
    text: &str,
    pages: &BTreeMap<String, Page>,
    checked: &mut Checked,
) {
    for (line, path) in links::named(text) {
        checked.links += 1;
        let (page, anchor) = path.split_once('#').unwrap_or((path.as_str(), ""));
        match pages.get(page) {
            None => checked.problem(file, line, &format!("{path}: the book has no such page")),
            Some(page) if !anchor.is_empty() && !page.anchors.contains(anchor) => {
                checked.problem(file, line, &format!("{path}: the page has no such heading"));
            }
            Some(_) => {}
        }
    }
}
