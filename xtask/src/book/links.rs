//! Where a link leads.

use super::page::PAGES;

/// A link's target, seen from the repository's root.
#[derive(Debug, PartialEq)]
pub(super) enum Target {
    /// Of the network, or of a mail program: not looked at.
    Elsewhere,
    Inside {
        file: String,
        anchor: Option<String>,
    },
    /// Above the repository's root.
    Outside,
}

impl Target {
    /// What `target` means in `file`.
    pub(super) fn of(file: &str, target: &str) -> Self {
        if target.contains("://") || target.starts_with("mailto:") {
            return Self::Elsewhere;
        }
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor.to_owned())),
            None => (target, None),
        };
        if path.is_empty() {
            return Self::Inside { file: file.to_owned(), anchor };
        }
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return Self::Outside;
                    }
                }
                part => parts.push(part),
            }
        }
        Self::Inside { file: parts.join("/"), anchor }
    }
}

/// The pages of the book that a text names, with their lines: by their path from the root, and as the
/// source of a rule, "book native.md".
pub(super) fn named(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.lines().zip(1..).flat_map(|(line, number)| {
        let paths = line.match_indices(PAGES).map(|(at, _)| at);
        let by_path = paths.filter_map(|at| Some(page(line.get(at..)?)?.to_owned()));
        let sources = line.match_indices(SOURCE).map(|(at, _)| at + SOURCE.len());
        let as_source =
            sources.filter_map(|at| Some(format!("{}/{}", PAGES, page(line.get(at..)?)?)));
        by_path.chain(as_source).map(move |path| (number, path)).collect::<Vec<_>>()
    })
}

/// How the source of a rule begins that is a page of the book.
const SOURCE: &str = "\"book ";

/// The path of a page, with its anchor, that a text begins with.
fn page(text: &str) -> Option<&str> {
    let in_a_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '#');
    let length = text.find(|c| !in_a_path(c)).unwrap_or(text.len());
    let path = text.get(..length)?.trim_end_matches('.');
    path.contains(".md").then_some(path)
}
