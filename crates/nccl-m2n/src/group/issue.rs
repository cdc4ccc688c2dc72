//! Ranks compare their groups, and the library issues them.

use nccl_ext_core::device::DeviceScope;
use nccl_ext_core::{Comm, Error, Result};

use super::{Group, RECORDING};
use crate::agreement::{self, Intent};
use crate::config::Agreement;
use crate::member::Member;
use crate::plan::layout_words;
use crate::runtime::Runtime;

impl Group<'_> {
    /// Ranks compare, one communicator after the other.
    pub(super) fn compare(&self, failed: Option<&Error>) -> Result<()> {
        for member in self.members() {
            let own = || self.entries.iter().filter(|entry| std::ptr::eq(&*entry.member, member));
            let mut hasher = member.hasher();
            own().for_each(|entry| {
                hasher.words(&layout_words(&entry.layouts.0));
                hasher.words(&layout_words(&entry.layouts.1));
            });
            // A group of one is not the call alone.
            hasher.word(0);
            let digest = hasher.finish();
            let compares = own().any(|entry| match entry.runtime.agreement {
                Agreement::Off => false,
                Agreement::PerShape => !member.knows(digest),
                Agreement::EveryCall => true,
            });
            if compares {
                let calls: Vec<_> = own().map(|entry| entry.layouts).collect();
                let intent = Intent { digest, calls: &calls, failed };
                let verdict = agreement::reach(member, &intent);
                let verdict = verdict.inspect_err(|error| member.lose(error)).and_then(|v| v);
                verdict.inspect_err(|error| self.lose_others(member, error))?;
                member.learn(digest);
            }
        }
        Ok(())
    }

    /// Ranks of other communicators do not know of a verdict on this one.
    fn lose_others(&self, decided: &Member, error: &Error) {
        let others = self.members().into_iter().filter(|member| !std::ptr::eq(*member, decided));
        others.for_each(|member| member.lose(error));
    }

    pub(super) fn issue(&mut self) -> Result<()> {
        let scopes = self.activate().inspect_err(|error| {
            self.abort();
            self.lose(error);
        })?;
        // The library's group ends with the call, whatever comes of it.
        self.open = false;
        RECORDING.set(false);
        let result = self.end_native();
        drop(scopes);
        if let Err(error) = &result {
            self.runtime.poison(error);
            self.entries.iter().for_each(|entry| entry.runtime.poison(error));
            self.lose(error);
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

/// Scopes that are left in the reverse order.
struct Scopes(Vec<DeviceScope>);

impl Drop for Scopes {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
