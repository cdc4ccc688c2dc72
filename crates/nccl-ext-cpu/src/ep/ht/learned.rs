//! What an update gives, and what of it calls are checked against.

use nccl_ext_core::raw::ncclResult_t;

use super::placement::Placement;
use super::routes::Routes;
use crate::ep::group::View;
use crate::ep::refusals::not_updated;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What the last update gave.
#[derive(Default)]
pub(super) struct Learned {
    /// The number of the update on the communicator's line, the same on all ranks; 0 before the
    /// first and after one that failed.
    pub(super) update: u64,
    pub(super) routes: Routes,
    pub(super) placement: Placement,
    /// Room for the image that goes to the caller's handle memory.
    pub(super) image: Vec<u64>,
}

/// What a call knows of the last update when it checks its arguments. Counts are 0 where the call
/// does not wait for the stream: then they are compared when the work runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) tokens: usize,
    /// Rows that this rank receives, clamped to the budget when dropping.
    pub(super) received: u64,
    /// Most copies of one row of any rank.
    pub(super) widest: u32,
}

/// An update that never was leaves stale maps, on which the vendor's kernels trap.
pub(super) fn never_updated() -> Refusal {
    not_updated(FailureClass::Trap, ncclResult_t::ncclInvalidUsage)
}

impl Learned {
    /// What is known when the last update has run.
    pub(super) fn known(&self, group: &View<'_>, expert_major: bool) -> Outcome<Known> {
        require(self.update != 0, never_updated)?;
        Ok(Known {
            tokens: self.routes.tokens(),
            received: self.placement.received(group.member.rank(), expert_major, group.settings),
            widest: self.placement.widest,
        })
    }

    /// The same for work of a call that was checked for so many tokens.
    pub(super) fn known_for(
        &self,
        group: &View<'_>,
        expert_major: bool,
        tokens: usize,
    ) -> Outcome<Known> {
        let known = self.known(group, expert_major)?;
        // Where the update that was called before has failed, an earlier one may still be here.
        require(known.tokens == tokens, || {
            let rule = "the update before an operation succeeds";
            let class = FailureClass::UndefinedBehaviour;
            let expected = format_args!("an update of {tokens} tokens").to_string();
            Refusal::usage(class, "handle", rule, expected, known.tokens)
        })?;
        Ok(known)
    }
}
