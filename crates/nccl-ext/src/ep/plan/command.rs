//! What an argument of this command is refused with.

use std::fmt::Display;

use crate::failure::InputError;

/// What messages name, where other commands name a file.
const COMMAND: &str = "ep plan";

pub(super) fn refuse(
    item: &'static str,
    rule: &'static str,
    expected: impl Display,
    found: impl Display,
) -> InputError {
    InputError::new(COMMAND, item, rule, expected, found)
}
