//! High-throughput combine (EP 4.8): every rank sums the rows of its tokens, which it finds by the
//! slots of the last update.

use std::sync::Arc;

use nccl_ext_core::DataType;
use nccl_ext_core::raw::cudaStream_t;

use super::check::{Checked, check, check_rows, check_widest};
use super::sum::{CombineSource, Sum};
use crate::ep::arguments::CombineArguments;
use crate::ep::group::{Uses, View};
use crate::ep::ht::state::HighThroughput;
use crate::ep::numerics::with_token_type;
use crate::ep::settings::HandleSettings;
use crate::lock::lock;
use crate::queue;
use crate::refusal::Outcome;
use crate::world::{Descriptor, SequenceId};

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(crate) unsafe fn combine(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<HighThroughput>,
    arguments: &CombineArguments,
    stream: cudaStream_t,
) -> Outcome {
    let name = CombineSource::NAME;
    let known = state.known(group, handle.is_expert_major(), stream, name, false)?;
    // SAFETY: this function's contract.
    let checked = unsafe { check(group, handle, &known, arguments)? };
    let (handle, data_type) = (*handle, arguments.data_type);
    let receiver = Receiver { handle, data_type, tokens: known.tokens, checked };
    let shared = Arc::clone(state);
    group.submit_operation(stream, name, Uses::Writes, move |group| {
        // SAFETY: the caller keeps the tensors until the stream has passed the call.
        unsafe { receiver.run(group, &shared) }
    })
}

/// A rank that combines, on its stream.
struct Receiver {
    handle: HandleSettings,
    data_type: DataType,
    tokens: usize,
    checked: Checked,
}

impl Receiver {
    /// # Safety
    /// The tensors of the call are valid.
    unsafe fn run(&self, group: &View<'_>, state: &HighThroughput) -> Outcome {
        let Self { handle, data_type, tokens, ref checked } = *self;
        let Checked { hidden, rows, mutated, out, mode, .. } = *checked;
        let settings = group.settings;
        state.declare_read()?;
        let learned = &*lock(&state.learned);
        let known = learned.known_for(group, handle.is_expert_major(), tokens)?;
        check_widest(settings, &handle, &known)?;
        check_rows(settings, &handle, &known, checked.room)?;
        let row_bytes = hidden * data_type.size();
        // Peers read, and where `mutated` write, until this rank's own combine is over (EP 4.11).
        let given = known.received as usize * row_bytes;
        if mutated {
            queue::write(rows, given)?
        } else {
            queue::read(rows, given)?
        };
        queue::write(out, tokens * row_bytes)?;
        let (update, digest) = (learned.update, learned.placement.digest);
        let key = [group.index, update, hidden as u64, data_type as u64, digest, 0];
        let source = CombineSource { key, rows, mutated };
        group.member.collective(SequenceId::COMM, &source, |peers, _| {
            with_token_type!(data_type, T => {
                let sum = Sum { learned, peers, hidden, mode };
                // SAFETY: all ranks are at the same update and of the same shape; the output has a
                // row for each token.
                unsafe { sum.all::<T>(out.cast()) }
            });
        })
    }
}
