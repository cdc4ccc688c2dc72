//! Vector clocks: what happened before what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A stream, or the host threads of a rank: whatever does one thing after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskId(u64);

impl TaskId {
    /// One that nobody else has.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How far each task had come.
#[derive(Debug, Clone, Default)]
pub(super) struct VectorClock(BTreeMap<TaskId, u64>);

impl VectorClock {
    /// Whether what `task` did at `time` is in it.
    pub(super) fn covers(&self, task: TaskId, time: u64) -> bool {
        self.0.get(&task).is_some_and(|&known| known >= time)
    }

    pub(super) fn join(&mut self, other: &Self) {
        for (&task, &time) in &other.0 {
            let known = self.0.entry(task).or_default();
            *known = time.max(*known);
        }
    }

    /// `task` has come as far as `time`.
    pub(super) fn at(&mut self, task: TaskId, time: u64) {
        let known = self.0.entry(task).or_default();
        *known = time.max(*known);
    }

    /// The time of a task that is at work now.
    pub(super) fn tick(&mut self, task: TaskId) -> u64 {
        let time = self.0.entry(task).or_default();
        *time += 1;
        *time
    }
}

/// Who does something: the task, in words and as a number, and the C function.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) task: TaskId,
    /// "stream 3 of rank 1".
    pub(super) name: Arc<str>,
    pub(super) call: &'static str,
}

/// What happened before the moment at which it was taken, everywhere. Empty where calls are complete
/// when they return.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(pub(super) Option<Arc<Moment>>);

/// A moment of one task.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) actor: Actor,
    /// What the task did up to the moment has this time or an earlier one.
    pub(super) time: u64,
    pub(super) before: VectorClock,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_covers_what_it_was_joined_with_and_nothing_later() {
        let [a, b] = [TaskId::new(), TaskId::new()];
        let (mut of_a, mut of_b) = (VectorClock::default(), VectorClock::default());
        let first = of_a.tick(a);
        of_b.tick(b);
        assert!(!of_b.covers(a, first));
        of_b.join(&of_a);
        let second = of_a.tick(a);
        assert!(of_b.covers(a, first) && !of_b.covers(a, second) && of_a.covers(a, first));
        assert!(!of_a.covers(b, 1));
    }
}
