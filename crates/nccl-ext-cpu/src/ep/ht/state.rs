//! What a high-throughput handle learns with each update.

use std::sync::{Arc, Mutex, OnceLock};

use nccl_ext_core::raw::cudaStream_t;

use super::image::ImageFacts;
use super::learned::{Known, Learned, never_updated};
use super::memory::HandleMemory;
use crate::ep::group::{Uses, View};
use crate::ep::settings::HandleSettings;
use crate::lock::lock;
use crate::queue::Deferral;
use crate::refusal::{FailureClass, Outcome, Refusal};

/// A handle's state, which streams' work shares that may run when the call has long returned.
#[derive(Default)]
pub(crate) struct HighThroughput {
    /// Tokens of the last update that was called; `None` before the first.
    pub(super) called: Mutex<Option<usize>>,
    /// Known when the work has run. Its lock is held while ranks meet, so a call whose work runs
    /// later does not take it.
    pub(super) learned: Mutex<Learned>,
    /// The caller's handle memory. It takes a copy of what an update gives.
    pub(super) memory: Option<HandleMemory>,
}

impl HighThroughput {
    /// A handle in memory of the caller's, or in the library's own.
    pub(crate) fn new(memory: Option<HandleMemory>) -> Self {
        Self { memory, ..Self::default() }
    }

    /// Goes on from what an update has left in the caller's memory, which the calling thread reads.
    ///
    /// # Safety
    /// The memory is still there, nobody writes it meanwhile, and it is as large as the largest
    /// image.
    pub(crate) unsafe fn import(
        &self,
        group: &View<'_>,
        facts: &ImageFacts,
        tokens: usize,
        handle: &HandleSettings,
    ) -> Outcome {
        let memory =
            self.memory.ok_or_else(|| Refusal::null(FailureClass::Return, "handle_mem"))?;
        // SAFETY: this function's contract.
        *lock(&self.learned) = unsafe { memory.import(group, facts, handle)? };
        *lock(&self.called) = Some(tokens);
        Ok(())
    }

    /// What the arguments of `call` are checked against. If it `waits`, it does so for the stream's
    /// earlier work on the calling thread, and reads the counts (EP 4.10).
    pub(super) fn known(
        self: &Arc<Self>,
        group: &View<'_>,
        expert_major: bool,
        stream: cudaStream_t,
        call: &'static str,
        waits: bool,
    ) -> Outcome<Known> {
        if group.member.deferral() == Deferral::Never {
            return lock(&self.learned).known(group, expert_major);
        }
        let tokens = lock(&self.called).ok_or_else(never_updated)?;
        if !waits {
            return Ok(Known { tokens, received: 0, widest: 0 });
        }
        let (shared, found) = (Arc::clone(self), Arc::new(OnceLock::new()));
        let result = Arc::clone(&found);
        group.wait_for_operation(stream, call, Uses::Reads, move |group| {
            shared.declare_read()?;
            let known = lock(&shared.learned).known_for(group, expert_major, tokens)?;
            // It is set once.
            let _ = result.set(known);
            Ok(())
        })?;
        found.get().copied().ok_or_else(never_updated)
    }

    /// The running work reads what the last update left in the caller's handle memory.
    pub(super) fn declare_read(&self) -> Outcome {
        self.memory.map_or(Ok(()), HandleMemory::declare_read)
    }
}
