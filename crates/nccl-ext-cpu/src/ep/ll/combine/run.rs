//! Low-latency combine (EP 4.4): every rank sums the rows of its tokens, which it finds by the
//! slots of its last dispatch.

use std::sync::Arc;

use nccl_ext_core::raw::cudaStream_t;

use super::check::{Checked, check, check_dispatched};
use super::masked;
use crate::ep::arguments::CombineArguments;
use crate::ep::group::{Uses, View};
use crate::ep::ll::destination::CombineDestination;
use crate::ep::ll::state::{LastDispatch, LowLatency, Receive, Staged, Work};
use crate::ep::settings::{HandleSettings, Layout};
use crate::ep::staging::CombineSource;
use crate::lock::lock;
use crate::queue;
use crate::refusal::Outcome;
use crate::world::Descriptor;

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(crate) unsafe fn combine(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<LowLatency>,
    arguments: &CombineArguments,
    stream: cudaStream_t,
) -> Outcome {
    let called = &mut *lock(&state.called);
    // SAFETY: this function's contract.
    let Checked { rows, destination } = unsafe { check(group, handle, called, arguments)? };
    let send_only = arguments.send_only;
    let sender = Sender { rows, destination, layout: handle.layout, send_only };
    let shared = Arc::clone(state);
    group.submit_operation(stream, CombineSource::NAME, Uses::Writes, move |group| {
        shared.declare_read()?;
        // SAFETY: `check` found the tensors to have the layout's shapes; the caller keeps them and
        // the ids until the stream has passed them.
        unsafe { sender.run(group, &mut lock(&shared.work)) }
    })?;
    if send_only {
        called.postpone(group.staging, stream, Receive::Combine(destination));
    }
    Ok(())
}

/// A rank that combines, on its stream.
struct Sender {
    rows: *const u8,
    destination: CombineDestination,
    layout: Layout,
    send_only: bool,
}

// SAFETY: the caller keeps the rows valid until the operation is complete, for whatever thread does
// the stream's work.
unsafe impl Send for Sender {}

impl Sender {
    /// # Safety
    /// The tensors of the call are valid and have the layout's shapes.
    unsafe fn run(&self, group: &View<'_>, work: &mut Work) -> Outcome {
        let (member, settings) = (group.member, group.settings);
        let Self { rows, destination, .. } = *self;
        let CombineDestination { hidden, topk, data_type, expert_major, ids, .. } = destination;
        let Work { sent, staged } = work;
        let sent = &*sent;
        // SAFETY: the caller keeps the table of the last update until the step's last combine.
        unsafe { check_dispatched(sent, ids)? };
        let source = CombineSource {
            key: [
                group.index,
                self.layout as u64,
                topk as u64,
                hidden as u64,
                data_type as u64,
                // Ranks with masks count on their own.
                if group.masks.is_some() { 0 } else { sent.operation },
            ],
            rows,
            starts: core::ptr::null(),
        };
        let key = source.key;
        let bytes = hidden * data_type.size();
        let stride =
            if expert_major { settings.ranks * settings.max_tokens } else { settings.max_tokens };
        for (region, &count) in sent.received.iter().enumerate() {
            let first = rows.wrapping_add(region * stride * bytes);
            queue::read(first, count as usize * bytes)?;
        }
        if let Some(masks) = group.masks {
            // SAFETY: the input has the layout's shape, of which the dispatch filled that much.
            let operation =
                unsafe { masked::send(group, masks, sent, &source, bytes, stride, expert_major)? };
            let send = Staged { operation, key };
            if self.send_only {
                *staged = Some(send);
                return Ok(());
            }
            // SAFETY: this function's contract.
            return unsafe { masked::receive(group, masks, sent, send, &destination) };
        }
        let stage = |operation| {
            let mut staging = lock(group.staging);
            // SAFETY: the input has the layout's shape, of which the dispatch filled that much.
            unsafe { staging.bank(operation).stage_combine(&source, bytes, stride, &sent.received) }
        };
        if self.send_only {
            let copy = stage(member.next_operation(group.sequence())?);
            // SAFETY: the group's bank keeps the copy until the second operation from here, and the
            // group outlives its sequence.
            let operation = unsafe { member.stage(group.sequence(), &*copy)? };
            *staged = Some(Staged { operation, key });
            return Ok(());
        }
        // SAFETY: all ranks combine the same dispatch in the same shape; this function's contract.
        let work = |peers: &[&CombineSource], _| unsafe { destination.sum(group, sent, peers) };
        let stage = |operation| Some(Arc::as_ptr(&stage(operation)));
        member.collective_among_staged(group.sequence(), &source, work, stage)?
    }
}

/// The receive half of a staged combine.
///
/// # Safety
/// The output and the weights of the staged call are still valid.
pub(crate) unsafe fn complete(
    group: &View<'_>,
    sent: &LastDispatch,
    staged: Staged,
    destination: &CombineDestination,
) -> Outcome {
    if let Some(masks) = group.masks {
        // SAFETY: this function's contract.
        return unsafe { masked::receive(group, masks, sent, staged, destination) };
    }
    group.member.complete(group.sequence(), staged.operation, |peers: &[&CombineSource]| {
        // SAFETY: this function's contract.
        unsafe { destination.sum(group, sent, peers) }
    })?
}
