//! Why an M2N call does not succeed: the words, the code, and what the vendor's library does there.

use std::fmt::Display;

use nccl_ext_core::Error;
use nccl_ext_core::raw::ncclResult_t;

use crate::refusal::{FailureClass, Refusal};

/// What texts about meshes and ranks begin with, whatever was called.
pub(super) const RESHARD: &str = "reshard";

/// A rule of the specification that does not hold. Groups keep and repeat it (M2N 4.3), and ranks
/// show it to their peers.
#[derive(Debug, Clone)]
pub(super) struct BrokenRule {
    code: ncclResult_t,
    class: FailureClass,
    pub(super) text: String,
}

impl BrokenRule {
    /// `ncclInvalidArgument`, which the vendor's library returns as well.
    pub(super) fn new(
        api: &str,
        argument: impl Display,
        rule: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        let text = format!("{api}: `{argument}`: {rule}; expected {expected}, found {found}");
        Self { code: ncclResult_t::ncclInvalidArgument, class: FailureClass::Return, text }
    }

    /// The same, but the vendor's library goes on, waits for ever or writes wrong bytes (M2N 2.7).
    pub(super) fn unchecked_by_the_vendor(mut self) -> Self {
        self.class = FailureClass::UndefinedBehaviour;
        self
    }

    pub(super) fn with_code(mut self, code: ncclResult_t) -> Self {
        self.code = code;
        self
    }
}

/// `Ok` when the rule holds.
pub(super) fn require(holds: bool, rule: impl FnOnce() -> BrokenRule) -> Result<(), BrokenRule> {
    if holds { Ok(()) } else { Err(rule()) }
}

/// What ends a call.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// What `ncclM2nGetLastError` says.
    pub(super) text: String,
    cause: Cause,
}

#[derive(Debug, Clone)]
enum Cause {
    Rule {
        code: ncclResult_t,
        class: FailureClass,
    },
    /// The ranks did not meet.
    World(Refusal),
}

impl From<BrokenRule> for Fault {
    fn from(BrokenRule { code, class, text }: BrokenRule) -> Self {
        Self { text, cause: Cause::Rule { code, class } }
    }
}

impl Fault {
    /// The ranks did not meet: a failed peer, a time-out, another operation. The vendor's library
    /// words what NCCL reports like this (M2N 1.7).
    pub(super) fn world(operation: &'static str, refusal: Refusal) -> Self {
        let reason = match refusal.to_error(operation) {
            Error::Native { detail, .. } => detail,
            other => other.to_string(),
        };
        let text = format!("NCCL operation {operation} failed: {reason}");
        Self { text, cause: Cause::World(refusal) }
    }

    /// The same as the fault of entry `index` of a group of `count` (M2N 2.6).
    pub(super) fn of_entry(mut self, index: usize, count: usize) -> Self {
        self.text = format!("ncclM2nGroupEnd: entry {index} of {count} failed: {}", self.text);
        self
    }

    /// What `call` records.
    pub(super) fn into_refusal(self, call: &'static str) -> Refusal {
        match self.cause {
            Cause::World(refusal) => refusal,
            Cause::Rule { code, class } => {
                Refusal::error(Error::Native { call, code, detail: self.text }).with_class(class)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_place_the_rule_and_the_numbers() {
        let rule = BrokenRule::new("ncclReshard", "src->ndims", "a tensor has axes", "1 to 3", 7);
        let fault = Fault::from(rule).of_entry(2, 3);
        assert_eq!(
            fault.text,
            "ncclM2nGroupEnd: entry 2 of 3 failed: ncclReshard: `src->ndims`: a tensor has axes; \
             expected 1 to 3, found 7"
        );
        let error = fault.into_refusal("ncclM2nGroupEnd").to_error("ncclM2nGroupEnd");
        let Error::Native { code, detail, .. } = error else { panic!("{error:?}") };
        assert_eq!(code, ncclResult_t::ncclInvalidArgument);
        assert!(detail.starts_with("ncclM2nGroupEnd: entry 2 of 3"), "{detail}");
    }
}
