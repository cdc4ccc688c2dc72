//! Where a link leads.

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

/// The pages of the book that a text names by their path from the root, with their lines.
pub(super) fn named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().zip(1..).flat_map(|(line, number)| {
        line.match_indices(super::PAGES).filter_map(move |(at, _)| {
            let rest = line.get(at..)?;
            let part_of_a_path =
                |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '#');
            let length = rest.find(|c| !part_of_a_path(c)).unwrap_or(rest.len());
            let path = rest.get(..length)?.trim_end_matches('.');
            path.contains(".md").then_some((number, path))
        })
    })
}
