//! Text, tables and JSON, and writing them to the two streams without a panic.

pub(crate) mod bytes;
pub(crate) mod columns;

use std::fmt;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::failure::Failure;

/// What each message begins with.
pub(crate) const PREFIX: &str = "nccl-ext: ";

/// Writes to stdout. A reader that has left (`nccl-ext demo | head -1`) is not an error.
///
/// # Errors
/// [`Failure::Output`] for everything else, such as a full disk.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

/// Writes one line to stderr, whatever the message holds: file names may have line breaks.
pub fn complain(message: &str) {
    // Where even stderr is closed, the exit code has to do.
    let _ = writeln!(io::stderr(), "{PREFIX}{}", one_line(message));
}

/// Writes what goes with a message, a line each.
pub fn quote(lines: &[String]) {
    for line in lines {
        let _ = writeln!(io::stderr(), "  {}", one_line(line));
    }
}

/// What `write` writes. It fails only as a formatter can, which a string does not.
pub(crate) fn text(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    let _ = write(&mut text);
    text
}

/// A value as one indented JSON object, with a line break.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    // Fails for maps with keys that are not text, which no type here has.
    let text = serde_json::to_string_pretty(value);
    text.map_or_else(|error| error.to_string(), |text| text + "\n")
}

/// The text with its control characters escaped.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().flat_map(escaped).collect()
}

fn escaped(character: char) -> impl Iterator<Item = char> {
    let control = character.is_control();
    let escape = control.then(|| character.escape_default());
    escape.into_iter().flatten().chain((!control).then_some(character))
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_become_one_line() {
        assert_eq!(super::one_line("a\nb\u{1b}[0m ü"), "a\\nb\\u{1b}[0m ü");
    }
}
