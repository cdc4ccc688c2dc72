//! Low-latency combine (EP 4.4): every rank sums the rows of its tokens, which it finds by the
//! slots of its last dispatch.

use std::sync::{Arc, Mutex};

use nccl_ext_core::raw::cudaStream_t;

use super::check::{Checked, check};
use super::masked;
use crate::ep::arguments::CombineArguments;
use crate::ep::group::View;
use crate::ep::ll::destination::CombineDestination;
use crate::ep::ll::state::{LastDispatch, LowLatency, Pending};
use crate::ep::settings::HandleSettings;
use crate::ep::staging::CombineSource;
use crate::lock::lock;
use crate::refusal::Outcome;
use crate::world::KEYS;

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(crate) unsafe fn combine(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<Mutex<LowLatency>>,
    arguments: &CombineArguments,
    _stream: cudaStream_t,
) -> Outcome {
    let state = &mut *lock(state);
    let (member, settings) = (group.member, group.settings);
    // SAFETY: this function's contract.
    let Checked { rows, destination } = unsafe { check(group, handle, state, arguments)? };
    let CombineDestination { hidden, expert_major, .. } = destination;
    let sent = &state.sent;
    let source = CombineSource {
        key: [
            group.index,
            handle.layout as u64,
            handle.topk as u64,
            hidden as u64,
            arguments.data_type as u64,
            // Ranks with masks count on their own.
            if group.masks.is_some() { 0 } else { sent.operation },
        ],
        rows,
        starts: core::ptr::null(),
    };
    let key = source.key;
    let bytes = hidden * arguments.data_type.size();
    let stride =
        if expert_major { settings.ranks * settings.max_tokens } else { settings.max_tokens };
    if let Some(masks) = group.masks {
        // SAFETY: the input has the layout's shape, of which the dispatch filled that much.
        let operation =
            unsafe { masked::send(group, masks, sent, &source, bytes, stride, expert_major)? };
        if arguments.send_only {
            state.postpone(group.staging, Pending::Combine { operation, key, destination });
            return Ok(());
        }
        // SAFETY: the output was checked.
        return unsafe { masked::receive(group, masks, sent, operation, key, &destination) };
    }
    let stage = |operation| {
        let mut staging = lock(group.staging);
        // SAFETY: the input has the layout's shape, of which the dispatch filled that much.
        unsafe { staging.bank(operation).stage_combine(&source, bytes, stride, &sent.received) }
    };
    if arguments.send_only {
        let copy = stage(member.next_operation(group.sequence())?);
        // SAFETY: the group's bank keeps the copy until the second operation from here, and the
        // group outlives its sequence.
        let operation = unsafe { member.stage(group.sequence(), &*copy)? };
        state.postpone(group.staging, Pending::Combine { operation, key, destination });
        return Ok(());
    }
    // SAFETY: all ranks combine the same dispatch in the same shape, and the output was checked.
    let work = |peers: &[&CombineSource], _| unsafe { destination.sum(group, sent, peers) };
    let stage = |operation| Some(Arc::as_ptr(&stage(operation)));
    member.collective_among_staged(group.sequence(), &source, work, stage)
}

/// The receive half of a staged combine.
///
/// # Safety
/// The output and the weights of the staged call are still valid.
pub(crate) unsafe fn complete(
    group: &View<'_>,
    sent: &LastDispatch,
    operation: u64,
    key: [u64; KEYS],
    destination: &CombineDestination,
) -> Outcome {
    if let Some(masks) = group.masks {
        // SAFETY: this function's contract.
        return unsafe { masked::receive(group, masks, sent, operation, key, destination) };
    }
    group.member.complete(group.sequence(), operation, |peers: &[&CombineSource]| {
        // SAFETY: this function's contract.
        unsafe { destination.sum(group, sent, peers) }
    })
}
