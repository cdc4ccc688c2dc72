//! Masks and asynchronous errors (EP 6.2): nothing yet but the refusals.

use nccl_ep_sys::ncclEpGroup_t;
use nccl_ext_core::raw::ncclResult_t;

use super::group::{self, Algorithm};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// # Safety
/// `group` is NULL or a live group of this backend.
pub(super) unsafe fn refuse(group: ncclEpGroup_t) -> Outcome {
    let throw = FailureClass::Throw;
    // SAFETY: this function's contract.
    let group = unsafe { group::shared(group, throw)? };
    let settings = group.view()?.settings;
    require(settings.mask, || {
        let rule = "the group was created with a mask";
        let ret = FailureClass::Return;
        Refusal::usage(ret, "enable_mask", rule, "not 0", 0)
    })?;
    require(settings.algorithm == Algorithm::LowLatency, || {
        let rule = "only low latency has a mask";
        Refusal::usage(throw, "ep_group", rule, "a low-latency group", "high throughput")
    })?;
    Err(Refusal::unsupported("the rank mask", ncclResult_t::ncclInvalidUsage))
}
