//! What the runtimes of a process share: the library's epoch (M2N 4.1).
//!
//! The library keeps caches for every communicator that it has seen, by address, until its last
//! handle is finalised. So a communicator must not be destroyed before, even by a runtime that is
//! finalised itself. Backends whose memory is the host's keep none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nccl_ext_core::{Backend, Comm, Error, MemorySpace, Result};

use crate::gate::Gate;

/// The epoch of one backend.
pub(crate) struct Epoch {
    /// Calls of other backends than the host's pass here.
    pub(crate) gate: Gate,
    caches: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Handles that are live or about to be.
    live: usize,
    /// A handle was given up: the epoch never ends.
    endless: bool,
    /// Communicators of finalised runtimes, kept until the epoch ends.
    held: Vec<Comm>,
    /// Addresses of communicators that may be gone, but which caches still know.
    stale: Vec<usize>,
}

fn address(comm: &Comm) -> usize {
    comm.as_raw().addr()
}

impl Epoch {
    /// The one of this backend. It is never freed, as the backend itself.
    pub(crate) fn of(backend: Backend) -> &'static Self {
        static ALL: Mutex<Vec<(Backend, &'static Epoch)>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, epoch)) = all.iter().find(|(other, _)| *other == backend) {
            return epoch;
        }
        let caches = backend.memory() == MemorySpace::Device;
        let state = Mutex::default();
        let epoch: &'static Self =
            Box::leak(Box::new(Self { gate: Gate::default(), caches, state }));
        all.push((backend, epoch));
        epoch
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
    pub(crate) fn begin(&self) {
        self.state().live += 1;
    }

    /// It was not made after all, or it is finalised; it had used these communicators.
    pub(crate) fn end(&self, used: Vec<Comm>) {
        let mut state = self.state();
        state.live = state.live.saturating_sub(1);
        if self.caches {
            state.held.extend(used);
        }
        let over = state.live == 0 && !state.endless;
        let release = if over { std::mem::take(&mut *state) } else { State::default() };
        // A communicator's drop may abort it, which is not for a locked moment.
        drop(state);
        drop(release);
    }

    /// A handle is given up without being finalised: the caches stay for good, and nothing will
    /// touch the communicators any more. Where there are no caches, their addresses are free.
    pub(crate) fn give_up(&self, used: Vec<Comm>) {
        let mut state = self.state();
        state.live = state.live.saturating_sub(1);
        state.endless = true;
        let held = std::mem::take(&mut state.held);
        if self.caches {
            state.stale.extend(held.iter().chain(&used).map(address));
        }
        drop(state);
        drop((held, used));
    }

    /// Refuses a communicator at the address of one that the caches still know.
    pub(crate) fn admit(&self, comm: &Comm) -> Result<()> {
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
