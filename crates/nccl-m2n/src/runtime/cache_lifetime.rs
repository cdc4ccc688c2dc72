//! What the runtimes of a process share: the lifetime of the library's caches (M2N 4.1).
//!
//! The library keeps caches for every communicator that it has seen, by address, until its last
//! handle is finalised. So a communicator must not be destroyed before, even by a runtime that is
//! finalised itself. Backends whose memory is the host's keep none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nccl_ext_core::{Backend, Comm, Error, MemorySpace, Result};

use super::call_gate::CallGate;

/// How long the library's caches of one backend last; the library calls it an epoch.
pub(crate) struct CacheLifetime {
    /// Calls of other backends than the host's pass here.
    pub(crate) gate: CallGate,
    caches: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Handles that are live or about to be.
    live: usize,
    /// A handle was given up.
    never_ends: bool,
    /// Communicators of finalised runtimes, kept until it ends.
    held: Vec<Comm>,
    /// Addresses of communicators that may be gone, but which caches still know.
    stale: Vec<usize>,
}

fn address(comm: &Comm) -> usize {
    comm.as_raw().addr()
}

impl CacheLifetime {
    /// The one of this backend. It is never freed, as the backend itself.
    pub(crate) fn of(backend: Backend) -> &'static Self {
        static ALL: Mutex<Vec<(Backend, &'static CacheLifetime)>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, lifetime)) = all.iter().find(|(other, _)| *other == backend) {
            return lifetime;
        }
        let caches = backend.memory() == MemorySpace::Device;
        let state = Mutex::default();
        let lifetime: &'static Self =
            Box::leak(Box::new(Self { gate: CallGate::default(), caches, state }));
        all.push((backend, lifetime));
        lifetime
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the library keeps something between calls, and wants them one at a time.
    pub(crate) fn has_caches(&self) -> bool {
        self.caches
    }

    /// A handle is about to be made. Counted first, so that no other one is taken for the last.
    pub(crate) fn add_handle(&self) {
        self.state().live += 1;
    }

    /// It was not made after all, or it is finalised; it had used these communicators.
    pub(crate) fn end_handle(&self, used: Vec<Comm>) {
        let mut state = self.state();
        state.live = state.live.saturating_sub(1);
        if self.caches {
            state.held.extend(used);
        }
        let over = state.live == 0 && !state.never_ends;
        let release = if over { std::mem::take(&mut *state) } else { State::default() };
        // A communicator's drop may abort it, which is not for a locked moment.
        drop(state);
        drop(release);
    }

    /// A handle is given up without being finalised: the caches stay for good, and nothing will
    /// touch the communicators any more. Where there are no caches, their addresses are free.
    pub(crate) fn give_up_handle(&self, used: Vec<Comm>) {
        let mut state = self.state();
        state.live = state.live.saturating_sub(1);
        state.never_ends = true;
        let held = std::mem::take(&mut state.held);
        if self.caches {
            state.stale.extend(held.iter().chain(&used).map(address));
        }
        drop(state);
        drop((held, used));
    }

    /// Refuses a communicator at the address of one that the caches still know.
    pub(crate) fn check_address(&self, comm: &Comm) -> Result<()> {
        if !self.state().stale.contains(&address(comm)) {
            return Ok(());
        }
        Err(Error::Busy {
            what: "the communicator's address",
            reason: "an earlier communicator had it, and a runtime that was dropped without \
                     finalize() left the library's caches of that one behind; restart the process"
                .into(),
        })
    }
}
