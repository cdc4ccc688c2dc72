//! `ncclEpComplete` (EP 6.1).

use nccl_ep_sys::{ncclEpCompleteConfig_t, ncclEpHandle_t};

use crate::entry::Scope;
use crate::ep::{handle, ll, structs};
use crate::refusal::{FailureClass, Outcome};

/// # Safety
/// The C contract of `ncclEpComplete`.
pub(crate) unsafe fn complete(
    scope: &Scope,
    handle: ncclEpHandle_t,
    config: *const ncclEpCompleteConfig_t,
) -> Outcome {
    // SAFETY: this function's contract, here and below.
    unsafe { structs::optional(config, "config")? };
    // SAFETY: as above.
    let handle = unsafe { handle::live(handle, FailureClass::UndefinedBehaviour)? };
    let (group, ready) = handle.view()?;
    scope.enter(group.member);
    // SAFETY: as above: the tensors of the staged call are still there.
    unsafe { ll::complete(&group, &ready.low) }
}
