//! The work that the calling thread runs, if it is a stream's.

use std::cell::RefCell;
use std::sync::Arc;

use super::clock::{Actor, Clock, Moment, VectorClock};
use super::host;

/// A stream at work.
pub(super) struct Running {
    pub(super) actor: Actor,
    pub(super) clock: VectorClock,
    pub(super) time: u64,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

impl Running {
    pub(super) fn now(&self) -> (&Actor, &VectorClock, u64) {
        (&self.actor, &self.clock, self.time)
    }

    fn step(&mut self) {
        self.time = self.clock.tick(self.actor.task);
    }
}

pub(super) fn with_running<T>(body: impl FnOnce(&mut Running) -> T) -> Option<T> {
    RUNNING.with_borrow_mut(|running| running.as_mut().map(body))
}

/// Runs `work` as a stream's, and gives the stream's clock afterwards.
pub(super) fn run<T>(
    actor: Actor,
    clock: VectorClock,
    work: impl FnOnce() -> T,
) -> (T, VectorClock) {
    let mut running = Running { actor, clock, time: 0 };
    running.step();
    RUNNING.set(Some(running));
    let result = work();
    let clock = RUNNING.take().map(|running| running.clock).unwrap_or_default();
    (result, clock)
}

/// The clock of the running work, or of the calling thread, as of now. What either does from now on is
/// not in it.
pub(crate) fn clock() -> Clock {
    let of_work = with_running(|running| {
        let (actor, time, before) = (running.actor.clone(), running.time, running.clock.clone());
        running.step();
        Clock(Some(Arc::new(Moment { actor, time, before })))
    });
    of_work.unwrap_or_else(host::clock)
}

/// What `clock` has happened before what the running work, or the calling thread, does from now on.
pub(crate) fn join(clock: &Clock) {
    let Some(moment) = &clock.0 else { return };
    let of_work = with_running(|running| running.clock.join(&moment.before));
    if of_work.is_none() {
        host::learn(&moment.before);
    }
}
