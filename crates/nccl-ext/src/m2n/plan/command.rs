//! Reading the arguments of this command, and what they are refused with.

use crate::failure::InputError;

/// What messages name, where other commands name a file.
pub(super) const COMMAND: &str = "m2n plan";

/// A count that is too large to list or draw.
pub(super) fn too_many(
    item: &'static str,
    rule: &'static str,
    most: usize,
    found: usize,
) -> InputError {
    InputError::new(COMMAND, item, rule, format!("at most {most}"), found.to_string())
}

/// Digits alone, without signs and blanks.
pub(super) fn whole(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
