//! Forms that say less than a citation does, so that no reader finds what is meant.

use std::collections::BTreeSet;

use super::citation::Citation;
use super::reader::Reader;

/// How the anchors of vectors and cases begin.
const DOCUMENTS: [&str; 3] = ["ep", "m2n", "case"];

/// Constants of tests have the names of fixtures.
const FIXTURES: [&str; 3] = ["F4", "F4K2", "G2"];

/// Vectors that comments name without their document, with where they stand. Code in them is left out.
pub(super) fn in_comments(
    text: &str,
    citations: &[Citation],
    anchors: &BTreeSet<String>,
) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let comment = comment(line);
        let offset = start + line.len() - comment.len();
        for (at, vector) in vectors(comment) {
            let at = offset + at;
            let is_cited = citations.iter().any(|cited| (cited.start..cited.end).contains(&at));
            if !is_cited && is_known(&vector, anchors) {
                found.push((at, vector));
            }
        }
        start += line.len();
    }
    found
}

/// Words that are a letter and a number, outside of `code`.
fn vectors(comment: &str) -> impl Iterator<Item = (usize, String)> {
    let mut in_code = false;
    let mut before = ' ';
    comment.char_indices().filter_map(move |(at, c)| {
        in_code ^= c == '`';
        let begins = matches!(before, ' ' | '(' | '/') && !in_code;
        before = c;
        let vector = if begins { Reader::new(comment, at).vector() } else { None }?;
        let end = comment.get(at + vector.len()..).unwrap_or_default();
        // Not "L2-norm", "D2:D3", "A1[0]".
        let ends = end.is_empty() || end.starts_with([' ', ',', '.', ';', ':', ')', '\n', '\'']);
        ends.then_some((at, vector))
    })
}

/// What a line says after "//".
fn comment(line: &str) -> &str {
    line.split_once("//").map_or("", |(_, comment)| comment)
}

fn is_known(vector: &str, anchors: &BTreeSet<String>) -> bool {
    let id = vector.to_lowercase();
    !FIXTURES.contains(&vector)
        && DOCUMENTS.iter().any(|document| anchors.contains(&format!("{document}-{id}")))
}
