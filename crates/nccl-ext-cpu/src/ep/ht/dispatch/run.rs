//! High-throughput dispatch (EP 4.5 to 4.7): every rank pushes its rows to where the last update
//! placed them.

use std::sync::Arc;

use nccl_ext_core::raw::cudaStream_t;

use super::check::{Checked, check};
use super::push::{DispatchTarget, Outputs, Push, RowBytes, Sources, zero};
use super::reception::Reception;
use crate::ep::arguments::DispatchArguments;
use crate::ep::group::{Uses, View};
use crate::ep::ht::learned::Learned;
use crate::ep::ht::placement::Zone;
use crate::ep::ht::state::HighThroughput;
use crate::ep::settings::HandleSettings;
use crate::lock::lock;
use crate::queue;
use crate::refusal::Outcome;
use crate::world::{Descriptor, KEYS, SequenceId};

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(crate) unsafe fn dispatch(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<HighThroughput>,
    arguments: &DispatchArguments,
    stream: cudaStream_t,
) -> Outcome {
    let name = DispatchTarget::NAME;
    let reception = Reception::of(group.settings, handle, &arguments.out_tokens);
    let counted = reception.is_counted();
    let known = state.known(group, handle.is_expert_major(), stream, name, counted)?;
    // SAFETY: this function's contract.
    let checked = unsafe { check(group, handle, &reception, &known, arguments)? };
    let Checked { sources, bytes, outputs } = checked;
    let (outputs, refused) = match outputs {
        Ok(outputs) => (Some(outputs), Ok(())),
        Err(refusal) => (None, Err(refusal)),
    };
    let hidden = arguments.tokens.extent(1) as u64;
    let shape = [hidden, arguments.data_type as u64];
    let (tokens, topk) = (known.tokens, handle.topk);
    let sender = Sender { reception, tokens, topk, shape, sources, bytes, outputs };
    let shared = Arc::clone(state);
    group.submit_operation(stream, name, Uses::Writes, move |group| {
        // SAFETY: the caller keeps the tensors until the stream has passed the call.
        unsafe { sender.run(group, &shared) }
    })?;
    refused
}

/// A rank that dispatches, on its stream.
struct Sender {
    reception: Reception,
    tokens: usize,
    topk: usize,
    /// Width and type of rows.
    shape: [u64; 2],
    sources: Sources,
    bytes: RowBytes,
    outputs: Option<Outputs>,
}

impl Sender {
    /// # Safety
    /// The tensors of the call are valid.
    unsafe fn run(&self, group: &View<'_>, state: &HighThroughput) -> Outcome {
        let Self { reception, bytes, outputs, .. } = self;
        state.declare_read()?;
        let learned = &*lock(&state.learned);
        let known = learned.known_for(group, reception.expert_major, self.tokens)?;
        self.declare_sources()?;
        if let Some(outputs) = outputs {
            reception.check_room(outputs, known.received)?;
            reception.declare(outputs, *bytes, known.received)?;
            // SAFETY: the checks found the budget's rows in both.
            unsafe { self.clear_before(outputs) };
        }
        let [hidden, data_type] = self.shape;
        let key: [u64; KEYS] = [
            group.index,
            learned.update,
            hidden,
            data_type,
            learned.placement.digest,
            bytes.scales as u64,
        ];
        let target = DispatchTarget { key, outputs: *outputs };
        group.member.collective(SequenceId::COMM, &target, |peers, _| {
            let (sources, settings) = (self.sources, group.settings);
            let push = Push { sources, peers, bytes: *bytes, topk: self.topk, settings };
            // SAFETY: all ranks are at the same update, so every slot that it placed exists on its
            // receiver and belongs to one sender.
            unsafe {
                if reception.expert_major {
                    push.expert_major(learned);
                } else {
                    push.flat(learned);
                }
            }
            if let Some(outputs) = outputs {
                // SAFETY: these rows exist by the checks above, and no sender has them.
                unsafe { self.finish(learned, outputs, known.received) };
            }
        })
    }

    /// The running work is about to read the tensors.
    fn declare_sources(&self) -> Outcome {
        let Self { sources, bytes, tokens, topk, .. } = self;
        queue::read(sources.tokens, tokens * bytes.tokens)?;
        queue::read(sources.scales, tokens * bytes.scales)?;
        queue::read(sources.weights.cast(), tokens * topk * size_of::<f32>())
    }

    /// Dropping in permute mode clears the whole budget first, so that rows which a zone advertises
    /// but nobody delivers read zero (EP 4.7).
    ///
    /// # Safety
    /// Both outputs have the budget's rows.
    unsafe fn clear_before(&self, outputs: &Outputs) {
        let reception = &self.reception;
        if let Some(budget) = reception.budget
            && reception.permute
            && reception.drop
        {
            // SAFETY: this function's contract.
            unsafe { zero(*outputs, self.bytes, 0, budget as usize) };
        }
    }

    /// Writes what belongs to no sender: padding, and the rest of index and weight outputs where the
    /// vendor's kernels write it (EP 4.6, 4.7).
    ///
    /// # Safety
    /// The outputs were checked.
    unsafe fn finish(&self, learned: &Learned, outputs: &Outputs, received: u64) {
        let reception = &self.reception;
        if reception.expert_major && !(reception.permute && reception.drop) {
            for Zone { base, count, padded } in &learned.placement.zones {
                let end = (base + padded).min(received);
                let begin = (base + count).min(end);
                // SAFETY: zones end inside the rows received.
                unsafe { zero(*outputs, self.bytes, begin as usize, end as usize) };
            }
        }
        let rest = received as usize..reception.weight_rows(received) as usize;
        if !reception.in_place || rest.is_empty() {
            return;
        }
        let width = reception.width();
        // SAFETY: both tables have `weight_rows` rows.
        unsafe {
            outputs.weights.add(rest.start * width).write_bytes(0, rest.len() * width);
            if !reception.expert_major {
                for i in rest.start * width..rest.end * width {
                    outputs.ids.add(i).write(-1);
                }
            }
        }
    }
}
