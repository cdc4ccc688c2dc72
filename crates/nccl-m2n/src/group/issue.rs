//! The library issues a group.

use nccl_ext_core::device::DeviceScope;
use nccl_ext_core::{Comm, Result};

use super::Group;
use crate::recording::set_recording;
use crate::runtime::Runtime;

impl Group<'_> {
    pub(super) fn issue(&mut self) -> Result<()> {
        let scopes = self.activate().inspect_err(|error| {
            self.abort();
            self.diverge_except(None, error);
        })?;
        // The library's group ends with the call, whatever comes of it.
        self.open = false;
        set_recording(false);
        let result = self.end_native();
        drop(scopes);
        if let Err(error) = &result {
            self.runtime.poison(error);
            self.entries.iter().for_each(|entry| entry.runtime.poison(error));
            self.diverge_except(None, error);
        }
        result
    }

    /// The devices of all communicators, nested, so that the outermost that changes anything
    /// restores the caller's: the library leaves its last one current.
    fn activate(&self) -> Result<Scopes> {
        let scopes = self.comm_states().into_iter().map(|state| state.comm.activate());
        scopes.collect::<Result<Vec<_>>>().map(Scopes)
    }

    fn end_native(&self) -> Result<()> {
        let Runtime { library, caches, .. } = self.runtime;
        let states = self.comm_states();
        let ids: Vec<_> = states.iter().map(|state| state.next_call()).collect();
        let gated = caches.has_caches() && !ids.is_empty();
        let _inside = gated.then(|| caches.gate.enter(&ids));
        // In one order on all threads, as two groups may share communicators.
        let mut comms: Vec<&Comm> = states.iter().map(|state| &state.comm).collect();
        comms.sort_unstable_by_key(|comm| comm.as_raw().addr());
        // Two runtimes may both know one.
        comms.dedup_by_key(|comm| comm.as_raw().addr());
        let _calls: Vec<_> = comms.iter().map(|comm| comm.lock()).collect();
        self.in_order(|| {
            // SAFETY: this thread's group, recorded above; the communicators live, and the tiles are
            // borrowed for longer than this call and stay valid until enqueued work is done.
            unsafe { library.call("ncclM2nGroupEnd", library.api.ncclM2nGroupEnd, ()) }
        })
    }
}

/// Scopes that are left in the reverse order.
struct Scopes(Vec<DeviceScope>);

impl Drop for Scopes {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
