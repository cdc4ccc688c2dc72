//! A file's text as sentences: a citation may go on in the next line of a comment or string.

/// The text with the marks of comments and the ends of lines blanked out, each byte in its place.
pub(super) struct Joined {
    text: String,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl Joined {
    pub(super) fn new(text: &str) -> Self {
        let mut joined = String::with_capacity(text.len());
        let mut lines = Vec::new();
        for line in text.split_inclusive('\n') {
            lines.push(joined.len());
            let body = line.trim_start();
            let indent = line.len() - body.len();
            let mark = ["//!", "///", "//", "> "].into_iter().find(|mark| body.starts_with(mark));
            let blank = indent + mark.map_or(0, str::len);
            joined.extend(std::iter::repeat_n(' ', blank));
            let rest = line.get(blank..).unwrap_or_default();
            // A string of code goes on in the next line after a backslash.
            let end = rest.trim_end();
            let kept = end.strip_suffix('\\').unwrap_or(end);
            joined.push_str(kept);
            joined.extend(std::iter::repeat_n(' ', rest.len() - kept.len()));
        }
        Self { text: joined, lines }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The line that holds the byte, counted from 1.
    pub(super) fn line(&self, byte: usize) -> usize {
        self.lines.partition_point(|start| *start <= byte)
    }
}
