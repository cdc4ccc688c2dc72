//! How a rank tells the others, in one word, that it failed before the call.

use nccl_ext_core::Error;
use nccl_ext_core::rules::{RuleInfo, Violation};

use crate::rules;
use crate::rules::agreement::PEER_ERROR;

/// The word of a rank that has not failed.
pub(super) const NO_FAILURE: u64 = 0;
/// The word of an error that is no row of the tables.
const OTHER_ERROR: u64 = 1;
/// The word of the tables' first row.
const FIRST_ROW: u64 = 2;

/// The rows of this crate, then those of core, such as the one about memory of another device.
fn rows() -> impl Iterator<Item = RuleInfo> {
    rules::all().chain(nccl_ext_core::rules::all())
}

/// The word for an error: where its row stands in the tables.
pub(super) fn encode(failed: Option<&Error>) -> u64 {
    let Some(error) = failed else { return NO_FAILURE };
    let error = match error {
        Error::Entry { error, .. } => error,
        other => other,
    };
    let row = rows().position(|row| row.is_cause_of(error));
    row.map_or(OTHER_ERROR, |place| place as u64 + FIRST_ROW)
}

/// The error of another rank that sent this word. The numbers are in that rank's own error.
pub(super) fn decode(word: u64, rank: usize) -> Error {
    let place = word.checked_sub(FIRST_ROW).and_then(|place| usize::try_from(place).ok());
    match place.and_then(|place| rows().nth(place)) {
        Some(row) => row.broken(Violation::new(
            format!("what the error on rank {rank} says"),
            "something else there",
        )),
        None => PEER_ERROR.broken(Violation::new(
            format!("no error on rank {rank}"),
            "one, which that rank reports",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_the_row() {
        for (place, row) in rows().enumerate() {
            let error = row.broken(Violation::new("a", "b"));
            assert_eq!(encode(Some(&error)), place as u64 + 2);
            assert!(row.is_cause_of(&decode(place as u64 + 2, 3)));
        }
        assert_eq!(encode(None), 0);
        let other = Error::RankGone { reason: "it left".into() };
        assert_eq!(encode(Some(&other)), 1);
        assert_eq!(
            decode(1, 3).to_string(),
            "`call`: every rank comes to the call without an error; expected no error on rank 3, \
             found one, which that rank reports"
        );
    }
}
