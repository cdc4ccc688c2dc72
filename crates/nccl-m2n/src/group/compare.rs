//! Ranks compare their groups.

use nccl_ext_core::{Error, Result};

use super::Group;
use super::entry::{Entry, FusionKey, may_fuse};
use crate::agreement::{Call, Intent, exchange_intents};
use crate::plan::layout_words;

impl Group<'_> {
    /// Ranks compare, one communicator after the other.
    pub(super) fn compare(&self, failed: Option<&Error>) -> Result<()> {
        let mut done: Vec<usize> = Vec::new();
        for state in self.comm_states() {
            let address = state.address();
            // Entries of several runtimes may share it.
            if done.contains(&address) {
                continue;
            }
            done.push(address);
            let own = || self.entries.iter().filter(|entry| entry.comm_state.address() == address);
            let calls = numbered(own());
            let mut hasher = state.hasher();
            for call in &calls {
                hasher.words(&layout_words(&call.source));
                hasher.words(&layout_words(&call.destination));
                hasher.word(call.bucket);
            }
            // A group of one is not the call alone.
            hasher.word(0);
            let digest = hasher.finish();
            let known = state.agreed.contains(digest);
            if own().any(|entry| entry.runtime.agreement.compares(known)) {
                let intent = Intent { digest, calls: &calls, failed };
                let exchanged = exchange_intents(&state.comm, &state.conditions, &intent);
                let verdict = exchanged.inspect_err(|error| {
                    state.diverge_after(error);
                    self.diverge_except(None, error);
                })?;
                // Ranks of other communicators do not know of a verdict on this one.
                verdict.inspect_err(|error| self.diverge_except(Some(address), error))?;
                state.agreed.insert(digest);
            }
        }
        Ok(())
    }
}

/// Calls of one communicator, each with the number of the first call that it may be fused with:
/// ranks fuse alike only where their handles and streams part the calls alike.
fn numbered<'a>(entries: impl Iterator<Item = &'a Entry<'a>>) -> Vec<Call> {
    let mut firsts: Vec<(FusionKey, u64)> = Vec::new();
    let number = |(entry, i): (&Entry<'_>, u64)| {
        let bucket = if may_fuse(entry.conditions()) {
            let key = entry.fusion_key();
            let known = firsts.iter().find(|(other, _)| *other == key).map(|(_, first)| *first);
            known.unwrap_or_else(|| {
                firsts.push((key, i));
                i
            })
        } else {
            i
        };
        let (source, destination) = entry.layouts;
        Call { source, destination, bucket }
    };
    entries.zip(0..).map(number).collect()
}
