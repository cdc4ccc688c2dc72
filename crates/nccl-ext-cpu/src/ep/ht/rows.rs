//! Rows of high throughput.

use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// High throughput moves rows in units of 16 bytes.
pub(super) fn check_row_unit(class: FailureClass, name: &str, bytes: usize) -> Outcome {
    require(bytes.is_multiple_of(16), || {
        let rule = "high throughput moves rows in units of 16 bytes";
        Refusal::argument(class, name, rule, "a multiple of 16 bytes", bytes)
    })
}
