//! `ncclEpComplete` (EP 6.1).

use std::sync::Arc;

use super::state::{LowLatency, Receive};
use super::{combine, dispatch};
use crate::ep::group::{Uses, View};
use crate::ep::refusals::not_sent;
use crate::lock::lock;
use crate::refusal::Outcome;

/// The receive half of a staged operation, if there is one. It runs on the stream of the send,
/// whatever stream the caller names now (EP 6.1).
///
/// # Safety
/// The tensors of the staged call are valid until the stream has passed this call.
pub(crate) unsafe fn complete(group: &View<'_>, state: &Arc<LowLatency>) -> Outcome {
    let called = &mut *lock(&state.called);
    let Some(pending) = called.pending else { return Ok(()) };
    let (state, receive) = (Arc::clone(state), pending.receive);
    group.submit_operation(pending.stream, "ncclEpComplete", Uses::Writes, move |group| {
        match receive {
            Receive::Dispatch(_) => state.declare_written()?,
            Receive::Combine(_) => state.declare_read()?,
        }
        let work = &mut *lock(&state.work);
        let staged = work.staged.ok_or_else(not_sent)?;
        // SAFETY: this function's contract.
        unsafe {
            match receive {
                Receive::Dispatch(to) => dispatch::complete(group, &mut work.sent, staged, &to)?,
                Receive::Combine(to) => combine::complete(group, &work.sent, staged, &to)?,
            }
        }
        work.staged = None;
        Ok(())
    })?;
    // On failure it stays, as the vendor's does.
    called.pending = None;
    lock(group.staging).pending = false;
    Ok(())
}
