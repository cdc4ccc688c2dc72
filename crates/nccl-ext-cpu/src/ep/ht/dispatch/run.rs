//! High-throughput dispatch (EP 4.5 to 4.7): every rank pushes its rows to where the last update
//! placed them.

use std::sync::{Arc, Mutex};

use nccl_ext_core::raw::cudaStream_t;

use super::check::{Checked, Received, check};
use super::push::{DispatchTarget, Outputs, Push, RowBytes, zero};
use crate::ep::arguments::DispatchArguments;
use crate::ep::group::View;
use crate::ep::ht::placement::Zone;
use crate::ep::ht::state::HighThroughput;
use crate::ep::settings::{HandleSettings, Settings};
use crate::lock::lock;
use crate::refusal::Outcome;
use crate::world::SequenceId;

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(crate) unsafe fn dispatch(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<Mutex<HighThroughput>>,
    arguments: &DispatchArguments,
    _stream: cudaStream_t,
) -> Outcome {
    let state = &*lock(state);
    let settings = group.settings;
    // SAFETY: this function's contract.
    let checked = unsafe { check(group, handle, state, arguments)? };
    let Checked { received, sources, bytes, outputs } = checked;
    if let Ok(outputs) = outputs {
        // SAFETY: the checks found the budget's rows in both.
        unsafe { clear_before(settings, &received, bytes, outputs) };
    }
    let target = DispatchTarget {
        key: [
            group.index,
            state.update,
            arguments.tokens.extent(1) as u64,
            arguments.data_type as u64,
            state.placement.digest,
            bytes.scales as u64,
        ],
        outputs: outputs.as_ref().ok().copied(),
    };
    group.member.collective(SequenceId::COMM, &target, |peers, _| {
        let push = Push { sources, peers, bytes, topk: handle.topk, settings };
        // SAFETY: all ranks are at the same update, so every slot that it placed exists on its
        // receiver and belongs to one sender.
        unsafe {
            if received.expert_major {
                push.expert_major(state);
            } else {
                push.flat(state);
            }
        }
        if let Ok(outputs) = outputs {
            // SAFETY: these rows exist by the checks above, and no sender has them.
            unsafe { finish(handle, state, &received, bytes, outputs) };
        }
    })?;
    outputs.map(drop)
}

/// Dropping in permute mode clears the whole budget first, so that rows which a zone advertises
/// but nobody delivers read zero (EP 4.7).
///
/// # Safety
/// Both outputs have the budget's rows.
unsafe fn clear_before(
    settings: &Settings,
    received: &Received,
    bytes: RowBytes,
    outputs: Outputs,
) {
    if received.permute && received.drop {
        let rows = settings.max_recv as usize;
        // SAFETY: this function's contract.
        unsafe { zero(outputs, bytes, 0, rows) };
    }
}

/// Writes what belongs to no sender: padding, and the rest of index and weight outputs where the
/// vendor's kernels write it (EP 4.6, 4.7).
///
/// # Safety
/// The outputs were checked.
unsafe fn finish(
    handle: &HandleSettings,
    state: &HighThroughput,
    received: &Received,
    bytes: RowBytes,
    outputs: Outputs,
) {
    if received.expert_major && !(received.permute && received.drop) {
        for Zone { base, count, padded } in &state.placement.zones {
            let end = (base + padded).min(received.rows);
            let begin = (base + count).min(end);
            // SAFETY: zones end inside the rows received.
            unsafe { zero(outputs, bytes, begin as usize, end as usize) };
        }
    }
    let rest = received.rows as usize..received.weight_rows() as usize;
    if !received.in_place || rest.is_empty() {
        return;
    }
    let width = if received.expert_major { 1 } else { handle.topk };
    // SAFETY: both tables have `weight_rows` rows.
    unsafe {
        outputs.weights.add(rest.start * width).write_bytes(0, rest.len() * width);
        if !received.expert_major {
            for i in rest.start * width..rest.end * width {
                outputs.ids.add(i).write(-1);
            }
        }
    }
}
