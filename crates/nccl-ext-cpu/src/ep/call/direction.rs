//! The direction of a pass.

use nccl_ep_sys::ncclEpPassDir_t;

use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// Low latency has one direction.
pub(super) fn require_forward(direction: ncclEpPassDir_t) -> Outcome {
    require(direction == ncclEpPassDir_t::NCCL_EP_FWD_PASS, || {
        let rule = "low latency has no backward pass";
        Refusal::usage(FailureClass::Return, "pass_direction", rule, "FWD (0)", direction.0)
    })
}
