//! Ranks compare their groups, and the library issues them.

use nccl_ext_core::device::DeviceScope;
use nccl_ext_core::{Comm, Error, Result};

use super::checks::may_fuse;
use super::{Entry, Group, RECORDING};
use crate::agreement::{self, Call, Intent};
use crate::plan::layout_words;
use crate::runtime::Runtime;

impl Group<'_> {
    /// Ranks compare, one communicator after the other.
    pub(super) fn compare(&self, failed: Option<&Error>) -> Result<()> {
        let mut done: Vec<usize> = Vec::new();
        for member in self.members() {
            let address = member.address();
            // Entries of several runtimes may share it.
            if done.contains(&address) {
                continue;
            }
            done.push(address);
            let own = || self.entries.iter().filter(|entry| entry.member.address() == address);
            let calls = numbered(own());
            let mut hasher = member.hasher();
            for call in &calls {
                hasher.words(&layout_words(&call.source));
                hasher.words(&layout_words(&call.destination));
                hasher.word(call.bucket);
            }
            // A group of one is not the call alone.
            hasher.word(0);
            let digest = hasher.finish();
            let known = member.knows(digest);
            if own().any(|entry| entry.runtime.agreement.compares(known)) {
                let intent = Intent { digest, calls: &calls, failed };
                let verdict = agreement::reach(member, &intent).inspect_err(|error| {
                    member.diverge_after(error);
                    self.leave_others(None, error);
                })?;
                // Ranks of other communicators do not know of a verdict on this one.
                verdict.inspect_err(|error| self.leave_others(Some(address), error))?;
                member.learn(digest);
            }
        }
        Ok(())
    }

    pub(super) fn issue(&mut self) -> Result<()> {
        let scopes = self.activate().inspect_err(|error| {
            self.abort();
            self.leave_others(None, error);
        })?;
        // The library's group ends with the call, whatever comes of it.
        self.open = false;
        RECORDING.set(false);
        let result = self.end_native();
        drop(scopes);
        if let Err(error) = &result {
            self.runtime.poison(error);
            self.entries.iter().for_each(|entry| entry.runtime.poison(error));
            self.leave_others(None, error);
        }
        result
    }

    /// The devices of all communicators, nested, so that the outermost that changes anything
    /// restores the caller's: the library leaves its last one current.
    fn activate(&self) -> Result<Scopes> {
        let scopes = self.members().into_iter().map(|member| member.comm.activate());
        scopes.collect::<Result<Vec<_>>>().map(Scopes)
    }

    fn end_native(&self) -> Result<()> {
        let Runtime { library, epoch, .. } = self.runtime;
        let members = self.members();
        let tickets: Vec<_> = members.iter().map(|member| member.ticket()).collect();
        let _pass = (epoch.has_caches() && !tickets.is_empty()).then(|| epoch.gate.enter(&tickets));
        // In one order on all threads, as two groups may share communicators.
        let mut comms: Vec<&Comm> = members.iter().map(|member| &member.comm).collect();
        comms.sort_unstable_by_key(|comm| comm.as_raw().addr());
        // Two runtimes may both know one.
        comms.dedup_by_key(|comm| comm.as_raw().addr());
        let _calls: Vec<_> = comms.iter().map(|comm| comm.lock()).collect();
        // SAFETY: this thread's group, recorded above; the communicators live, and the tiles are
        // borrowed for longer than this call and stay valid until enqueued work is done.
        unsafe { library.call("ncclM2nGroupEnd", library.api.ncclM2nGroupEnd, ()) }
    }
}

/// Calls of one communicator, each with the number of the first call that it may be fused with:
/// ranks fuse alike only where their handles and streams part the calls alike.
fn numbered<'a>(entries: impl Iterator<Item = &'a Entry<'a>>) -> Vec<Call> {
    let mut firsts: Vec<((usize, usize, usize), u64)> = Vec::new();
    let number = |(entry, i): (&Entry<'_>, u64)| {
        let bucket = if may_fuse(&entry.member.conditions) {
            let key = entry.bucket();
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

/// Scopes that are left in the reverse order.
struct Scopes(Vec<DeviceScope>);

impl Drop for Scopes {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
