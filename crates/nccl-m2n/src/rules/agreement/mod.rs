//! Rules of what ranks tell each other before a call (M2N 2.7, 4.5).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::Scope;
use nccl_ext_core::rules::RuleInfo;

/// Broken where ranks exchange what they are about to do, by the error of another rank that is no
/// row of the table. All ranks get it.
pub(crate) const PEER_ERROR: RuleInfo = RuleInfo::new(
    "agreement.peer-error",
    "call",
    "every rank comes to the call without an error",
    "M2N 4.5",
    Scope::Local,
);
