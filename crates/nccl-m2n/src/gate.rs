//! Who may be inside the library at the same time.
//!
//! The library wants its calls serialised within a process, except for ranks that join the same
//! collective (M2N 4.2). Calls of one communicator enter together, once all its ranks of this
//! process have arrived: one that waits inside for a rank at the door would wait for ever. A rank
//! that does not come within [`PATIENCE`] is left to the library, which may know why.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a call waits at the door.
const PATIENCE: Duration = Duration::from_secs(2);

/// One call of a communicator's ranks in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The communicator, by the number that its ranks agreed on.
    pub(crate) comm: u64,
    /// Which of its calls, from 0; the ranks count alike.
    pub(crate) call: u64,
    /// Its ranks in this process.
    pub(crate) ranks: usize,
}

#[derive(Debug)]
struct Call {
    ticket: Ticket,
    arrived: usize,
    entered: usize,
    left: usize,
}

impl Call {
    fn is_ready(&self) -> bool {
        self.arrived >= self.ticket.ranks
    }

    fn is_inside(&self) -> bool {
        self.entered > self.left
    }
}

/// The door.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    calls: Mutex<Vec<Call>>,
    moved: Condvar,
}

impl Gate {
    /// Waits until a call of these communicators may enter. A group has several.
    pub(crate) fn enter<'a>(&'a self, tickets: &'a [Ticket]) -> Pass<'a> {
        let mut calls = self.lock();
        for ticket in tickets {
            match calls.iter_mut().find(|call| call.ticket == *ticket) {
                Some(call) => call.arrived += 1,
                None => {
                    calls.push(Call { ticket: *ticket, arrived: 1, entered: 0, left: 0 });
                }
            }
        }
        if !may_enter(&calls, tickets) {
            self.moved.notify_all();
            let end = Instant::now() + PATIENCE;
            loop {
                let rest = end.saturating_duration_since(Instant::now());
                let waited = self.moved.wait_timeout(calls, rest);
                calls = waited.unwrap_or_else(PoisonError::into_inner).0;
                if may_enter(&calls, tickets) || rest.is_zero() {
                    break;
                }
            }
        }
        own(&mut calls, tickets).for_each(|call| call.entered += 1);
        if tickets.iter().any(|ticket| ticket.ranks > 1) {
            self.moved.notify_all();
        }
        Pass { gate: self, tickets }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        // Nothing panics while it is held.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn own<'a>(calls: &'a mut [Call], tickets: &'a [Ticket]) -> impl Iterator<Item = &'a mut Call> {
    calls.iter_mut().filter(|call| tickets.contains(&call.ticket))
}

/// A communicator is complete, and whoever is inside waits for one of ours.
fn may_enter(calls: &[Call], tickets: &[Ticket]) -> bool {
    let own = |call: &&Call| tickets.contains(&call.ticket);
    let complete = calls.iter().filter(own).any(Call::is_ready);
    let mut inside = calls.iter().filter(|call| call.is_inside()).peekable();
    complete && (inside.peek().is_none() || inside.any(|call| tickets.contains(&call.ticket)))
}

/// A call that is inside; it leaves when dropped.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    tickets: &'a [Ticket],
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut calls = self.gate.lock();
        own(&mut calls, self.tickets).for_each(|call| call.left += 1);
        calls.retain(|call| call.left < call.ticket.ranks);
        self.gate.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn ticket(comm: u64, call: u64, ranks: usize) -> Ticket {
        Ticket { comm, call, ranks }
    }

    #[test]
    fn communicators_take_turns_and_leave_nothing_behind() {
        let gate = Gate::default();
        let inside = AtomicUsize::new(0);
        thread::scope(|scope| {
            for comm in 0..4 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    for call in 0..200 {
                        let tickets = [ticket(comm, call, 1)];
                        let _pass = gate.enter(&tickets);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(gate.lock().is_empty());
    }

    #[test]
    fn ranks_of_a_communicator_meet_inside() {
        let gate = Gate::default();
        let barriers = [Barrier::new(3), Barrier::new(2)];
        thread::scope(|scope| {
            for (comm, ranks) in [(0_u64, 3_usize), (1, 2)] {
                for _ in 0..ranks {
                    let (gate, barrier) = (&gate, &barriers[comm as usize]);
                    scope.spawn(move || {
                        for call in 0..50 {
                            let tickets = [ticket(comm, call, ranks)];
                            let _pass = gate.enter(&tickets);
                            barrier.wait(); // as a collective does
                        }
                    });
                }
            }
        });
        assert!(gate.lock().is_empty());
    }

    /// Rank 1 belongs to both communicators; rank 2 comes to the second one first.
    #[test]
    fn an_early_rank_does_not_lock_out_those_that_it_waits_for() {
        let gate = Gate::default();
        let (first, second) = (Barrier::new(2), Barrier::new(2));
        let start = Instant::now();
        thread::scope(|scope| {
            let (gate, first, second) = (&gate, &first, &second);
            let call = move |comm, barrier: &Barrier| {
                let tickets = [ticket(comm, 0, 2)];
                let _pass = gate.enter(&tickets);
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
        assert!(start.elapsed() < PATIENCE);
    }

    /// A group over two communicators is inside when either is complete.
    #[test]
    fn a_group_brings_all_its_communicators_in() {
        let gate = Gate::default();
        let (a, b) = (Barrier::new(2), Barrier::new(2));
        let start = Instant::now();
        thread::scope(|scope| {
            let (gate, a, b) = (&gate, &a, &b);
            scope.spawn(move || {
                let tickets = [ticket(0, 0, 2), ticket(1, 0, 2)];
                let _pass = gate.enter(&tickets);
                a.wait();
                b.wait();
            });
            for (comm, barrier) in [(1, b), (0, a)] {
                scope.spawn(move || {
                    let tickets = [ticket(comm, 0, 2)];
                    let _pass = gate.enter(&tickets);
                    barrier.wait();
                });
            }
        });
        assert!(start.elapsed() < PATIENCE);
        assert!(gate.lock().is_empty());
    }

    #[test]
    fn a_rank_that_never_comes_is_left_to_the_library() {
        let gate = Gate::default();
        let start = Instant::now();
        let tickets = [ticket(0, 0, 2)];
        drop(gate.enter(&tickets));
        assert!(start.elapsed() >= PATIENCE);
    }
}
