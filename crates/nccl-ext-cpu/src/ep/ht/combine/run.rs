//! High-throughput combine (EP 4.8): every rank sums the rows of its tokens, which it finds by the
//! slots of the last update.

use std::sync::{Arc, Mutex};

use nccl_ext_core::raw::cudaStream_t;

use super::check::{Checked, check};
use super::sum::{CombineSource, Sum};
use crate::ep::arguments::CombineArguments;
use crate::ep::group::View;
use crate::ep::ht::state::HighThroughput;
use crate::ep::numerics::with_token_type;
use crate::ep::settings::HandleSettings;
use crate::lock::lock;
use crate::refusal::Outcome;
use crate::world::SequenceId;

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(crate) unsafe fn combine(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<Mutex<HighThroughput>>,
    arguments: &CombineArguments,
    _stream: cudaStream_t,
) -> Outcome {
    let state = &*lock(state);
    // SAFETY: this function's contract.
    let checked = unsafe { check(group, handle, state, arguments)? };
    let Checked { hidden, rows, mutated, out, mode } = checked;
    let source = CombineSource {
        key: [
            group.index,
            state.update,
            hidden as u64,
            arguments.data_type as u64,
            state.placement.digest,
            0,
        ],
        rows,
        mutated,
    };
    group.member.collective(SequenceId::COMM, &source, |peers, _| {
        with_token_type!(arguments.data_type, T => {
            let sum = Sum { state, peers, hidden, mode };
            // SAFETY: all ranks are at the same update and of the same shape; the output has a
            // row for each token.
            unsafe { sum.all::<T>(out.cast()) }
        });
    })
}
