//! How citations are written, and the anchors that they stand for.

use super::range;
use super::reader::Reader;

/// A citation with everything that its list names.
#[derive(Debug)]
pub(super) struct Citation {
    pub(super) start: usize,
    pub(super) end: usize,
    /// What it stands for, in the order in which it is written; ranges with all that they span.
    pub(super) anchors: Vec<String>,
}

impl Citation {
    /// How it is written, in one line.
    pub(super) fn text(&self, text: &str) -> String {
        let written = text.get(self.start..self.end).unwrap_or_default();
        written.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// What a citation is a list of.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    /// Sections, and rows of their tables and lists.
    Sections,
    /// Vectors, fixtures and cases: a letter and a number.
    Vectors,
}

/// The words that begin a citation, and how its anchors begin. Longer ones first.
const BEGINNINGS: &[(&[&str], &str, Names)] = &[
    (&["EP", "vectors"], "ep", Names::Vectors),
    (&["EP", "vector"], "ep", Names::Vectors),
    (&["EP", "fixtures"], "ep", Names::Vectors),
    (&["EP", "fixture"], "ep", Names::Vectors),
    (&["EP"], "ep", Names::Sections),
    (&["M2N", "vectors"], "m2n", Names::Vectors),
    (&["M2N", "vector"], "m2n", Names::Vectors),
    (&["M2N"], "m2n", Names::Sections),
    (&["Cases"], "case", Names::Vectors),
    (&["Case"], "case", Names::Vectors),
    (&["cases"], "case", Names::Vectors),
    (&["case"], "case", Names::Vectors),
];

/// All citations of a text.
pub(super) fn all(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text.get(at..).and_then(|rest| rest.find(['E', 'M', 'C', 'c'])) {
        let start = at + next;
        at = start + 1;
        if !begins_a_word(text, start) {
            continue;
        }
        if let Some(citation) = citation(text, start) {
            at = citation.end;
            found.push(citation);
        }
    }
    found
}

fn begins_a_word(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    // "NCCL EP 0.2.0" is a version of the library.
    let is_product = before.trim_end().ends_with("NCCL");
    let belongs = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '#' | '.');
    !is_product && !before.ends_with(belongs)
}

fn citation(text: &str, start: usize) -> Option<Citation> {
    let (document, names, mut reader) =
        BEGINNINGS.iter().find_map(|(words, document, names)| {
            let mut reader = Reader::new(text, start);
            words.iter().all(|word| reader.word(word)).then_some((document, *names, reader))
        })?;
    let mut list = List::default();
    let mut places: Vec<String> = Vec::new();
    let mut end = start;
    let mut is_range = false;
    // A separator that no place follows is none of the citation's.
    while let Some(place) = list.next(&mut reader, names) {
        if let Some(last) = places.last().filter(|_| is_range) {
            places.extend(range::between(last, &place));
        }
        places.push(place);
        end = reader.at();
        match reader.separator() {
            Some(separator) => is_range = separator.is_range,
            None => break,
        }
    }
    let anchors: Vec<String> =
        places.iter().map(|place| format!("{document}-{}", place.to_lowercase())).collect();
    (!anchors.is_empty()).then_some(Citation { start, end, anchors })
}

/// What the names of a list so far say about the next: "EP 2.1 #21, #22" means two rows of 2.1.
#[derive(Default)]
struct List {
    section: Option<String>,
    /// Of the two lists of EP 3.2, the one that the last row was of.
    part: Option<&'static str>,
    was_letter: bool,
}

impl List {
    fn next(&mut self, reader: &mut Reader<'_>, names: Names) -> Option<String> {
        if names == Names::Vectors {
            return reader.vector();
        }
        if let Some(section) = self.section.clone()
            && let Some(row) = self.row(reader, self.was_letter)
        {
            return Some(format!("{section}-{row}"));
        }
        let section = reader.section()?;
        *self = Self { section: Some(section.clone()), ..Self::default() };
        match self.row(reader, true) {
            Some(row) => Some(format!("{section}-{row}")),
            None => Some(section),
        }
    }

    /// "#10", "LL c", or "c" where a letter may stand.
    fn row(&mut self, reader: &mut Reader<'_>, letters: bool) -> Option<String> {
        if let Some(row) = reader.numbered_row() {
            self.was_letter = false;
            return Some(row);
        }
        if let Some((part, letter)) = reader.row_of_part() {
            (self.part, self.was_letter) = (Some(part), true);
            return Some(format!("{part}-{letter}"));
        }
        let letter = if letters { reader.letter() } else { None }?;
        self.was_letter = true;
        Some(self.part.map_or_else(|| letter.to_string(), |part| format!("{part}-{letter}")))
    }
}
