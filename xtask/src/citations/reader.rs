//! The words of a citation.

/// Reads a text from some place on. What does not fit is not taken.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

pub(super) struct Separator {
    /// "to", where others are "," and "and".
    pub(super) is_range: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Goes on only where `read` found something.
    fn try_read<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = self.at;
        let found = read(self);
        if found.is_none() {
            self.at = start;
        }
        found
    }

    fn spaces(&mut self) -> Option<()> {
        let rest = self.rest();
        let length = rest.len() - rest.trim_start().len();
        self.at += length;
        (length > 0).then_some(())
    }

    fn literal(&mut self, literal: &str) -> Option<()> {
        self.rest().starts_with(literal).then(|| self.at += literal.len())
    }

    /// Takes as many characters as fit, if any does.
    fn some(&mut self, fits: impl Fn(char) -> bool) -> Option<&'a str> {
        let rest = self.rest();
        let length = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).filter(|taken| !taken.is_empty())
    }

    fn end_of_word(&self) -> Option<()> {
        let goes_on = |c: char| c.is_alphanumeric() || c == '_';
        (!self.rest().starts_with(goes_on)).then_some(())
    }

    /// The word, and the spaces after it.
    pub(super) fn word(&mut self, word: &str) -> bool {
        self.try_read(|reader| reader.literal(word).and_then(|()| reader.spaces())).is_some()
    }

    /// ", ", " and ", ", and ", " or " or " to ".
    pub(super) fn separator(&mut self) -> Option<Separator> {
        self.try_read(|reader| {
            let comma = reader.literal(",").is_some();
            reader.spaces()?;
            let is_range = reader.word("to");
            let joined = is_range || reader.word("and") || reader.word("or");
            (comma || joined).then_some(Separator { is_range })
        })
    }

    /// "3.5.2".
    pub(super) fn section(&mut self) -> Option<String> {
        self.try_read(|reader| {
            let digit = |c: char| c.is_ascii_digit();
            let mut section = reader.some(digit).filter(|number| number.len() <= 2)?.to_owned();
            let further = |reader: &mut Self| {
                reader.literal(".")?;
                reader.some(digit)
            };
            while let Some(number) = reader.try_read(further) {
                section.push('.');
                section.push_str(number);
            }
            reader.end_of_word().map(|()| section)
        })
    }

    /// "B3", "D05", "F4K2".
    pub(super) fn vector(&mut self) -> Option<String> {
        self.try_read(|reader| {
            let letter = reader.rest().chars().next().filter(char::is_ascii_uppercase)?;
            reader.at += 1;
            let number = reader.some(|c| c.is_ascii_digit() || c.is_ascii_uppercase())?;
            let is_numbered = number.starts_with(|c: char| c.is_ascii_digit());
            reader.end_of_word().filter(|()| is_numbered).map(|()| format!("{letter}{number}"))
        })
    }

    /// "#10", "#28d"; after a section or alone.
    pub(super) fn numbered_row(&mut self) -> Option<String> {
        self.try_read(|reader| {
            reader.spaces();
            reader.literal("#")?;
            let row = reader.some(|c| c.is_ascii_digit() || c.is_ascii_lowercase())?;
            row.starts_with(|c: char| c.is_ascii_digit()).then(|| row.to_owned())
        })
    }

    /// "LL c": a row of one of the two lists of a section.
    pub(super) fn row_of_part(&mut self) -> Option<(&'static str, char)> {
        self.try_read(|reader| {
            reader.spaces();
            let part = if reader.word("LL") {
                "ll"
            } else if reader.word("HT") {
                "ht"
            } else {
                return None;
            };
            reader.lone_letter().map(|letter| (part, letter))
        })
    }

    /// "c" alone. "a" before a word is an article.
    pub(super) fn letter(&mut self) -> Option<char> {
        self.try_read(|reader| {
            reader.spaces();
            let letter = reader.lone_letter()?;
            let mut next = reader.rest().chars();
            let before_a_word = next.next().is_some_and(char::is_whitespace)
                && !reader.rest().trim_start().starts_with("to ")
                && next.find(|c| !c.is_whitespace()).is_some_and(char::is_alphanumeric);
            (!before_a_word).then_some(letter)
        })
    }

    fn lone_letter(&mut self) -> Option<char> {
        let letter = self.rest().chars().next().filter(char::is_ascii_lowercase)?;
        self.at += 1;
        self.end_of_word().map(|()| letter)
    }
}
