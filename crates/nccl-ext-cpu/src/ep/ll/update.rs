//! The update of a low-latency handle (EP 3.5.1), which meets nobody.

use std::sync::Arc;

use super::entries::Entries;
use super::limits::lowest_id;
use super::state::{LastDispatch, LowLatency};
use crate::ep::group::View;
use crate::ep::settings::HandleSettings;
use crate::ep::tensor::TopK;
use crate::lock::lock;
use crate::queue::Deferral;
use crate::refusal::Outcome;

/// Remembers the caller's top-k table; it is read by dispatch and combine.
///
/// # Safety
/// The table stays valid and unchanged until the step's last combine.
pub(crate) unsafe fn update(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<LowLatency>,
    topk: TopK,
) -> Outcome {
    // Where work runs later the ids may still be on their way, and the last operation, too.
    if group.member.deferral() == Deferral::Never {
        // SAFETY: this function's contract.
        unsafe { topk.check(group.settings.experts, lowest_id(group.settings))? };
        // Dispatch allocates nothing.
        let entries = topk.tokens * handle.topk;
        let sent = &mut lock(&state.work).sent;
        let LastDispatch { entries: Entries { experts, .. }, slots, .. } = sent;
        experts.reserve(entries.saturating_sub(experts.len()));
        slots.of_entry.reserve(entries.saturating_sub(slots.of_entry.len()));
    }
    lock(&state.called).topk = Some(topk);
    Ok(())
}
