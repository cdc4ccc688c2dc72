//! Recording one reshard.

use nccl_ext_core::rules::check;
use nccl_ext_core::{Result, Scope};

use super::entry::{Entry, entry_error};
use super::{EntryFailure, Group};
use crate::dist_tensor::Side;
use crate::reshard_call::ReshardCall;
use crate::rules::group::{self, EntryFacts, MOST_ENTRIES};
use crate::runtime::Runtime;

impl<'env> Group<'env> {
    /// Records a call; its first error is the group's.
    pub(super) fn add(
        &mut self,
        runtime: &'env Runtime,
        call: &ReshardCall<'_, 'env>,
    ) -> Result<()> {
        if let Some(EntryFailure { error, .. }) = &self.failed {
            return Err(error.clone());
        }
        let index = self.entries.len();
        let recorded = self.record(runtime, call).map_err(|error| entry_error(index, error));
        recorded.inspect_err(|error| {
            let address = call.comm.as_raw().addr();
            // The ranks of other communicators may have recorded fewer entries.
            let full = index >= MOST_ENTRIES;
            let only_comm = self.entries.iter().all(|entry| entry.comm_state.address() == address);
            let uniform = error.scope() == Scope::Uniform && (only_comm || !full);
            let in_step = uniform.then_some(address);
            self.failed = Some(EntryFailure { error: error.clone(), in_step });
        })
    }

    fn record(&mut self, runtime: &'env Runtime, call: &ReshardCall<'_, 'env>) -> Result<()> {
        runtime.check_not_poisoned()?;
        let facts = EntryFacts { before: self.entries.len() };
        check(group::ENTRY, |broken| broken(&facts))?;
        let comm_state = runtime.comm_state(call.comm)?;
        comm_state.check_in_step()?;
        call.check_layouts(&comm_state.conditions)?;
        let failed = call.check_local().err();
        if failed.is_none() {
            // SAFETY: the handle lives as long as the runtime. Recording copies the descriptors
            // and touches no memory (M2N 1.6). What it keeps, communicator, tiles and stream, is
            // held by the entry or borrowed for `'env`, until the group has ended, and their owners
            // keep it valid until enqueued work is done.
            unsafe { call.call_native(runtime.library, runtime.handle) }
                .inspect_err(|error| runtime.poison(error))?;
        }
        let rank = call.comm.rank();
        let tile = |side: &Side<'_>| {
            let start = side.tile_of(rank)?.ptr.addr();
            Some(start..start + side.layout.local_bytes()).filter(|range| !range.is_empty())
        };
        self.entries.push(Entry {
            runtime,
            comm_state,
            layouts: (call.source.layout, call.destination.layout),
            tiles: [tile(call.source), tile(call.destination)],
            uses: call.uses(),
            stream: call.stream,
            failed,
        });
        Ok(())
    }
}
