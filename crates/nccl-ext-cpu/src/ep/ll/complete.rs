//! `ncclEpComplete` (EP 6.1).

use super::state::{LowLatency, Pending};
use super::{combine, dispatch};
use crate::ep::group::View;
use crate::lock::lock;
use crate::refusal::Outcome;

/// The receive half of a staged operation, if there is one (EP 6.1).
///
/// # Safety
/// The tensors of the staged call are still valid.
pub(crate) unsafe fn complete(group: &View<'_>, state: &mut LowLatency) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        match &state.pending {
            None => return Ok(()),
            Some(Pending::Dispatch { operation, key, destination }) => {
                dispatch::complete(group, &mut state.sent, *operation, *key, destination)?;
            }
            Some(Pending::Combine { operation, key, destination }) => {
                combine::complete(group, &state.sent, *operation, *key, destination)?;
            }
        }
    }
    // On failure it stays, as the vendor's does.
    state.pending = None;
    lock(group.staging).pending = false;
    Ok(())
}
