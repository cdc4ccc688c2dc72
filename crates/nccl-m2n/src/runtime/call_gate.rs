//! Who may be inside the library at the same time.
//!
//! The library wants its calls serialised within a process, except for ranks that join the same
//! collective (M2N 4.2). Calls of one communicator enter together, once all its ranks of this
//! process have arrived: one that waits inside for a rank at the door would wait for ever. Nobody
//! waits at the door for good, though: a rank that does not come within [`WAIT_FOR_RANKS`] is left to
//! the library, which may know why, and so is a call that does not end within [`WAIT_FOR_OTHERS`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a call waits for the other ranks of its communicators.
const WAIT_FOR_RANKS: Duration = Duration::from_secs(2);
/// How long it waits, complete, for those inside.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(60);

/// One call of a communicator's ranks in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallId {
    /// The communicator, by the number that its ranks agreed on.
    pub(crate) comm: u64,
    /// Which of its calls, from 0; the ranks count alike.
    pub(crate) call: u64,
    /// Its ranks in this process.
    pub(crate) ranks: usize,
}

#[derive(Debug)]
struct PendingCall {
    id: CallId,
    arrived: usize,
    entered: usize,
    left: usize,
}

impl PendingCall {
    fn is_ready(&self) -> bool {
        self.arrived >= self.id.ranks
    }

    fn is_inside(&self) -> bool {
        self.entered > self.left
    }
}

/// The door.
#[derive(Debug, Default)]
pub(crate) struct CallGate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<PendingCall>,
    /// Threads that wait at the door; waking nobody would still be a system call.
    waiting: usize,
}

impl State {
    fn own<'a>(&'a mut self, ids: &'a [CallId]) -> impl Iterator<Item = &'a mut PendingCall> {
        self.calls.iter_mut().filter(|call| ids.contains(&call.id))
    }

    /// All ranks of one of the communicators are here.
    fn is_complete(&self, ids: &[CallId]) -> bool {
        let own = |call: &&PendingCall| ids.contains(&call.id);
        self.calls.iter().filter(own).any(PendingCall::is_ready)
    }

    /// A communicator is complete, and whoever is inside waits for one of ours.
    fn may_enter(&self, ids: &[CallId]) -> bool {
        let mut inside = self.calls.iter().filter(|call| call.is_inside()).peekable();
        self.is_complete(ids)
            && (inside.peek().is_none() || inside.any(|call| ids.contains(&call.id)))
    }
}

impl CallGate {
    /// Waits until a call of these communicators may enter. A group has several.
    pub(crate) fn enter<'a>(&'a self, ids: &'a [CallId]) -> CallGuard<'a> {
        let mut state = self.lock();
        for id in ids {
            match state.calls.iter_mut().find(|call| call.id == *id) {
                Some(call) => call.arrived += 1,
                None => {
                    state.calls.push(PendingCall { id: *id, arrived: 1, entered: 0, left: 0 });
                }
            }
        }
        if !state.may_enter(ids) {
            state = self.wait(state, ids);
        }
        state.own(ids).for_each(|call| call.entered += 1);
        self.wake_waiting(&state);
        CallGuard { gate: self, ids }
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        ids: &[CallId],
    ) -> MutexGuard<'a, State> {
        let start = Instant::now();
        self.wake_waiting(&state);
        state.waiting += 1;
        loop {
            let patience = if state.is_complete(ids) { WAIT_FOR_OTHERS } else { WAIT_FOR_RANKS };
            let rest = patience.saturating_sub(start.elapsed());
            let waited = self.moved.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.may_enter(ids) || rest.is_zero() {
                state.waiting -= 1;
                return state;
            }
        }
    }

    fn wake_waiting(&self, state: &State) {
        if state.waiting > 0 {
            self.moved.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is inside; it leaves when dropped.
pub(crate) struct CallGuard<'a> {
    gate: &'a CallGate,
    ids: &'a [CallId],
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.own(self.ids).for_each(|call| call.left += 1);
        state.calls.retain(|call| call.left < call.id.ranks);
        self.gate.wake_waiting(&state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn id(comm: u64, call: u64, ranks: usize) -> CallId {
        CallId { comm, call, ranks }
    }

    #[test]
    fn communicators_take_turns_and_leave_nothing_behind() {
        let gate = CallGate::default();
        let inside = AtomicUsize::new(0);
        thread::scope(|scope| {
            for comm in 0..4 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    for call in 0..200 {
                        let ids = [id(comm, call, 1)];
                        let _inside = gate.enter(&ids);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(gate.lock().calls.is_empty());
    }

    #[test]
    fn ranks_of_a_communicator_meet_inside() {
        let gate = CallGate::default();
        let barriers = [Barrier::new(3), Barrier::new(2)];
        thread::scope(|scope| {
            for (comm, ranks) in [(0_u64, 3_usize), (1, 2)] {
                for _ in 0..ranks {
                    let (gate, barrier) = (&gate, &barriers[comm as usize]);
                    scope.spawn(move || {
                        for call in 0..50 {
                            let ids = [id(comm, call, ranks)];
                            let _inside = gate.enter(&ids);
                            barrier.wait(); // as a collective does
                        }
                    });
                }
            }
        });
        assert!(gate.lock().calls.is_empty());
    }

    /// Rank 1 belongs to both communicators; rank 2 comes to the second one first.
    #[test]
    fn an_early_rank_does_not_lock_out_those_that_it_waits_for() {
        let gate = CallGate::default();
        let (first, second) = (Barrier::new(2), Barrier::new(2));
        let start = Instant::now();
        thread::scope(|scope| {
            let (gate, first, second) = (&gate, &first, &second);
            let call = move |comm, barrier: &Barrier| {
                let ids = [id(comm, 0, 2)];
                let _inside = gate.enter(&ids);
                barrier.wait();
            };
            scope.spawn(move || call(1, second));
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(20));
                call(0, first);
                call(1, second);
            });
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(40));
                call(0, first);
            });
        });
        assert!(start.elapsed() < WAIT_FOR_RANKS);
    }

    /// A group over two communicators is inside when either is complete.
    #[test]
    fn a_group_brings_all_its_communicators_in() {
        let gate = CallGate::default();
        let (a, b) = (Barrier::new(2), Barrier::new(2));
        let start = Instant::now();
        thread::scope(|scope| {
            let (gate, a, b) = (&gate, &a, &b);
            scope.spawn(move || {
                let ids = [id(0, 0, 2), id(1, 0, 2)];
                let _inside = gate.enter(&ids);
                a.wait();
                b.wait();
            });
            for (comm, barrier) in [(1, b), (0, a)] {
                scope.spawn(move || {
                    let ids = [id(comm, 0, 2)];
                    let _inside = gate.enter(&ids);
                    barrier.wait();
                });
            }
        });
        assert!(start.elapsed() < WAIT_FOR_RANKS);
        assert!(gate.lock().calls.is_empty());
    }

    #[test]
    fn a_rank_that_never_comes_is_left_to_the_library() {
        let gate = CallGate::default();
        let start = Instant::now();
        let ids = [id(0, 0, 2)];
        drop(gate.enter(&ids));
        assert!(start.elapsed() >= WAIT_FOR_RANKS);
    }
}
