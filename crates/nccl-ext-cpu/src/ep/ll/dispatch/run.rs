//! Low-latency dispatch (EP 4.1 to 4.3): every rank pulls its rows from what its peers show.

use std::sync::Arc;

use nccl_ext_core::raw::cudaStream_t;

use super::check::{Checked, Tensors, check};
use super::masked;
use crate::ep::arguments::{DispatchArguments, scale_data};
use crate::ep::group::{Uses, View};
use crate::ep::ll::destination::DispatchDestination;
use crate::ep::ll::limits::lowest_id;
use crate::ep::ll::state::{LastDispatch, LowLatency, Receive, Staged, Work};
use crate::ep::settings::HandleSettings;
use crate::ep::staging::{DispatchSource, RowShape};
use crate::ep::tensor::{TopK, WindowOnly};
use crate::lock::lock;
use crate::queue;
use crate::refusal::Outcome;
use crate::world::{Descriptor, KEYS};

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(crate) unsafe fn dispatch(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<LowLatency>,
    arguments: &DispatchArguments,
    stream: cudaStream_t,
) -> Outcome {
    let called = &mut *lock(&state.called);
    // SAFETY: this function's contract.
    let Checked { topk, tensors } = unsafe { check(group, handle, called.topk, arguments)? };
    let Tensors { rows, weights, outputs } = tensors;
    let (scales, out_scales, scale_bytes) =
        scale_data(arguments.scales.as_ref(), group.member, WindowOnly::Undefined)?;
    let shape = RowShape { topk: handle.topk, bytes: arguments.row_bytes()?, scale_bytes };
    let destination = DispatchDestination { shape, scales: out_scales, outputs };
    let key = [
        group.index,
        handle.layout as u64,
        handle.topk as u64,
        arguments.tokens.extent(1) as u64,
        arguments.data_type as u64,
        scale_bytes as u64,
    ];
    let send_only = arguments.send_only;
    let sender = Sender { topk, rows, weights, scales, key, send_only, destination };
    let shared = Arc::clone(state);
    group.submit_operation(stream, DispatchSource::NAME, Uses::Writes, move |group| {
        shared.declare_written()?;
        // SAFETY: `check` found the outputs to have the layout's shapes; the caller keeps tensors
        // and ids until the stream has passed them.
        unsafe { sender.run(group, &mut lock(&shared.work)) }
    })?;
    called.dispatched = true;
    if send_only {
        called.postpone(group.staging, stream, Receive::Dispatch(destination));
    }
    Ok(())
}

/// A rank that dispatches, on its stream.
struct Sender {
    topk: TopK,
    rows: *const u8,
    weights: *const f32,
    scales: *const u8,
    key: [u64; KEYS],
    send_only: bool,
    destination: DispatchDestination,
}

// SAFETY: the caller keeps the tensors valid until the operation is complete, for whatever thread
// does the stream's work.
unsafe impl Send for Sender {}

impl Sender {
    /// # Safety
    /// The tensors of the call are valid, and the outputs have the layout's shapes.
    unsafe fn run(&self, group: &View<'_>, work: &mut Work) -> Outcome {
        let (member, settings) = (group.member, group.settings);
        let Self { topk, key, destination, .. } = *self;
        let shape = destination.shape;
        let Work { sent, staged } = work;
        sent.operation = 0;
        topk.declare()?;
        // SAFETY: the caller keeps the table of the last update until the step's last combine. It
        // may have been written since, so it is checked again.
        unsafe {
            topk.check(settings.experts, lowest_id(settings))?;
            sent.entries.build(topk.ids(), settings.experts);
        }
        self.declare()?;
        destination.declare_start(settings)?;
        let source = DispatchSource {
            clock: queue::clock(),
            key,
            tokens: topk.tokens,
            experts: sent.entries.experts.as_ptr(),
            per_expert: sent.entries.per_expert.as_ptr(),
            rows: self.rows,
            scales: self.scales,
            weights: self.weights,
        };
        if let Some(masks) = group.masks {
            // SAFETY: the source was made of the caller's tensors and this handle's tables.
            let operation = unsafe { masked::send(group, masks, &source, &destination) };
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
            // SAFETY: the source was made of the caller's tensors and this handle's tables.
            unsafe { staging.bank(operation).stage_dispatch(&source, shape, settings.experts) }
        };
        if self.send_only {
            let copy = stage(member.next_operation(group.sequence())?);
            // SAFETY: the group's bank keeps the copy until the second operation from here, and the
            // group outlives its sequence.
            let operation = unsafe { member.stage(group.sequence(), &*copy)? };
            *staged = Some(Staged { operation, key });
            return Ok(());
        }
        let work = |peers: &[&DispatchSource], operation| {
            // SAFETY: this function's contract.
            unsafe { destination.pull(group, sent, peers, &peers[..member.rank()], operation) }
        };
        let stage = |operation| Some(Arc::as_ptr(&stage(operation)));
        member.collective_among_staged(group.sequence(), &source, work, stage)?
    }

    /// The running work is about to read the tensors, for itself and for its peers.
    fn declare(&self) -> Outcome {
        let RowShape { topk, bytes, scale_bytes } = self.destination.shape;
        let tokens = self.topk.tokens;
        queue::read(self.rows, tokens * bytes)?;
        queue::read(self.scales, tokens * scale_bytes)?;
        if self.weights.is_null() {
            return Ok(());
        }
        queue::read(self.weights.cast(), tokens * topk * size_of::<f32>())
    }
}

/// The receive half of a staged dispatch.
///
/// # Safety
/// The outputs of the staged call are still valid.
pub(crate) unsafe fn complete(
    group: &View<'_>,
    sent: &mut LastDispatch,
    staged: Staged,
    destination: &DispatchDestination,
) -> Outcome {
    if let Some(masks) = group.masks {
        // SAFETY: this function's contract.
        return unsafe { masked::receive(group, masks, sent, staged, destination) };
    }
    let operation = staged.operation;
    group.member.complete(group.sequence(), operation, |peers: &[&DispatchSource]| {
        // SAFETY: this function's contract.
        unsafe { destination.pull(group, sent, peers, &peers[..group.member.rank()], operation) }
    })?
}
