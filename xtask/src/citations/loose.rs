//! Forms that say less than a citation does, so that no reader finds what is meant.

use std::collections::BTreeSet;

use super::citation::{Citation, Names};
use super::reader::Reader;

/// How the anchors of vectors and cases begin.
const DOCUMENTS: [&str; 3] = ["ep", "m2n", "case"];

/// The vector that stands right after a citation of sections, where a name should be.
pub(super) fn after(citation: &Citation, text: &str, anchors: &BTreeSet<String>) -> Option<String> {
    let rest = text.get(citation.end..).filter(|_| citation.names == Names::Sections)?;
    let spaces = rest.len() - rest.trim_start().len();
    let vector = Reader::new(text, citation.end + spaces).vector();
    vector.filter(|vector| spaces > 0 && is_known(vector, anchors))
}

/// Vectors that a comment names without their document: after "vector" and "fixture", and as its
/// first word. With their lines.
pub(super) fn in_comments(text: &str, anchors: &BTreeSet<String>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let Some(comment) = comment(line) else { continue };
        let first = Reader::new(comment, 0).vector().filter(|vector| {
            let rest = comment.get(vector.len()..).unwrap_or_default();
            rest.is_empty()
                || [",", ":", ".", ";", " to ", " and "].iter().any(|end| rest.starts_with(end))
        });
        let vectors = first.into_iter().chain(after_words(comment));
        found.extend(
            vectors.filter(|vector| is_known(vector, anchors)).map(|vector| (number, vector)),
        );
    }
    found
}

fn after_words(comment: &str) -> impl Iterator<Item = String> {
    let words = ["vector ", "vectors ", "Vector ", "Vectors ", "fixture ", "Fixture "];
    words.into_iter().flat_map(move |word| {
        comment.match_indices(word).filter_map(move |(at, _)| {
            let before = comment.get(..at).unwrap_or_default().trim_end();
            let is_cited = before.ends_with("EP") || before.ends_with("M2N");
            let vector = Reader::new(comment, at + word.len()).vector();
            vector.filter(|_| !is_cited)
        })
    })
}

fn comment(line: &str) -> Option<&str> {
    let (_, comment) = line.split_once("//")?;
    Some(comment.trim_start_matches(['/', '!']).trim())
}

fn is_known(vector: &str, anchors: &BTreeSet<String>) -> bool {
    let id = vector.to_lowercase();
    DOCUMENTS.iter().any(|document| anchors.contains(&format!("{document}-{id}")))
}
