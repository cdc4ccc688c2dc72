//! Low-latency dispatch (EP 4.1 to 4.3): every rank pulls its rows from what its peers show.

use std::sync::{Arc, Mutex};

use nccl_ext_core::raw::cudaStream_t;

use super::check::{Checked, Tensors, check};
use super::masked;
use crate::ep::arguments::{DispatchArguments, scale_data};
use crate::ep::group::View;
use crate::ep::ll::destination::DispatchDestination;
use crate::ep::ll::limits::lowest_id;
use crate::ep::ll::state::{LastDispatch, LowLatency, Pending};
use crate::ep::settings::HandleSettings;
use crate::ep::staging::{DispatchSource, RowShape};
use crate::ep::tensor::WindowOnly;
use crate::lock::lock;
use crate::refusal::Outcome;
use crate::world::KEYS;

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(crate) unsafe fn dispatch(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<Mutex<LowLatency>>,
    arguments: &DispatchArguments,
    _stream: cudaStream_t,
) -> Outcome {
    let state = &mut *lock(state);
    let (member, settings) = (group.member, group.settings);
    // SAFETY: this function's contract.
    let Checked { topk, tensors } = unsafe { check(group, handle, state.topk, arguments)? };
    let Tensors { rows, weights, outputs } = tensors;
    let entries = &mut state.sent.entries;
    state.sent.operation = 0;
    // SAFETY: the caller keeps the table of the last update until the step's last combine. It may
    // have been written since, so it is checked again.
    unsafe {
        topk.check(settings.experts, lowest_id(settings))?;
        entries.build(topk.ids(), settings.experts);
    }
    let (scales, out_scales, scale_bytes) =
        scale_data(arguments.scales.as_ref(), member, WindowOnly::Undefined)?;
    let source = DispatchSource {
        key: [
            group.index,
            handle.layout as u64,
            handle.topk as u64,
            arguments.tokens.extent(1) as u64,
            arguments.data_type as u64,
            scale_bytes as u64,
        ],
        tokens: topk.tokens,
        experts: entries.experts.as_ptr(),
        per_expert: entries.per_expert.as_ptr(),
        rows,
        scales,
        weights,
    };
    let shape = RowShape { topk: handle.topk, bytes: arguments.row_bytes()?, scale_bytes };
    let destination = DispatchDestination { shape, scales: out_scales, outputs };
    let key = source.key;
    if let Some(masks) = group.masks {
        // SAFETY: the source was made of the caller's tensors and this handle's tables.
        let operation = unsafe { masked::send(group, masks, &source, &destination) };
        if arguments.send_only {
            state.postpone(group.staging, Pending::Dispatch { operation, key, destination });
            return Ok(());
        }
        let sent = &mut state.sent;
        // SAFETY: `check` found the outputs to have the layout's shapes.
        return unsafe { masked::receive(group, masks, sent, operation, key, &destination) };
    }
    let stage = |operation| {
        let mut staging = lock(group.staging);
        // SAFETY: the source was made of the caller's tensors and this handle's tables.
        unsafe { staging.bank(operation).stage_dispatch(&source, shape, settings.experts) }
    };
    if arguments.send_only {
        let copy = stage(member.next_operation(group.sequence())?);
        // SAFETY: the group's bank keeps the copy until the second operation from here, and the
        // group outlives its sequence.
        let operation = unsafe { member.stage(group.sequence(), &*copy)? };
        state.postpone(group.staging, Pending::Dispatch { operation, key, destination });
        return Ok(());
    }
    let sent = &mut state.sent;
    let work = |peers: &[&DispatchSource], operation| {
        // SAFETY: `check` found the outputs to have the layout's shapes.
        unsafe { destination.pull(group, sent, peers, &peers[..member.rank()], operation) }
    };
    let stage = |operation| Some(Arc::as_ptr(&stage(operation)));
    member.collective_among_staged(group.sequence(), &source, work, stage)?
}

/// The receive half of a staged dispatch.
///
/// # Safety
/// The outputs of the staged call are still valid.
pub(crate) unsafe fn complete(
    group: &View<'_>,
    sent: &mut LastDispatch,
    operation: u64,
    key: [u64; KEYS],
    destination: &DispatchDestination,
) -> Outcome {
    if let Some(masks) = group.masks {
        // SAFETY: this function's contract.
        return unsafe { masked::receive(group, masks, sent, operation, key, destination) };
    }
    group.member.complete(group.sequence(), operation, |peers: &[&DispatchSource]| {
        // SAFETY: this function's contract.
        unsafe { destination.pull(group, sent, peers, &peers[..group.member.rank()], operation) }
    })?
}
