//! The uses of an allocation, and whether they have an order.

use std::ops::Range;

use nccl_ext_core::{Error, RacingUse};

use super::clock::{Actor, VectorClock};
use crate::refusal::{Outcome, Refusal};

/// A use that later ones are compared with.
#[derive(Debug)]
struct Use {
    bytes: Range<usize>,
    writes: bool,
    actor: Actor,
    time: u64,
}

/// The uses of one allocation that still matter.
#[derive(Debug, Default)]
pub(super) struct Uses(Vec<Use>);

/// A use that is about to happen.
pub(super) struct NewUse<'a> {
    pub(super) bytes: Range<usize>,
    pub(super) writes: bool,
    pub(super) actor: &'a Actor,
    pub(super) time: u64,
    pub(super) before: &'a VectorClock,
}

impl Uses {
    /// Notes a use, unless an earlier one of the same bytes, one of the two a write, is not known to
    /// be over.
    pub(super) fn add(&mut self, new: &NewUse<'_>, buffer: impl FnOnce() -> String) -> Outcome {
        let NewUse { bytes, writes, actor, time, before } = new;
        let unordered = |old: &&Use| {
            let both = old.bytes.start.max(bytes.start) < old.bytes.end.min(bytes.end);
            both && (old.writes || *writes)
                && old.actor.task != actor.task
                && !before.covers(old.actor.task, old.time)
        };
        if let Some(old) = self.0.iter().find(unordered) {
            let both = old.bytes.start.max(bytes.start)..old.bytes.end.min(bytes.end);
            let racing =
                |actor: &Actor, writes| RacingUse::new(actor.call, actor.name.to_string(), writes);
            let (first, second) = (racing(&old.actor, old.writes), racing(actor, *writes));
            return Err(Refusal::error(Error::race(first, second, buffer(), both)));
        }
        // What comes after this use comes after those that it covers: a write after everything
        // inside, a read after the same task's earlier reads inside.
        self.0.retain(|old| {
            let inside = bytes.start <= old.bytes.start && old.bytes.end <= bytes.end;
            let covered = *writes || (!old.writes && old.actor.task == actor.task);
            !(inside && covered)
        });
        let actor = (*actor).clone();
        self.0.push(Use { bytes: bytes.clone(), writes: *writes, actor, time: *time });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::TaskId;
    use super::*;

    fn actor(call: &'static str) -> Actor {
        Actor { task: TaskId::new(), name: call.into(), call }
    }

    fn add(
        uses: &mut Uses,
        who: &Actor,
        clock: &VectorClock,
        at: Range<usize>,
        w: bool,
    ) -> Outcome {
        let time = 1;
        let new = NewUse { bytes: at, writes: w, actor: who, time, before: clock };
        uses.add(&new, || "the buffer".into())
    }

    #[test]
    fn reads_share_and_a_write_needs_the_order_of_each_of_them() {
        let [a, b, c] = ["a", "b", "c"].map(actor);
        let [mut of_a, mut of_b, mut of_c] = [(); 3].map(|()| VectorClock::default());
        for (clock, who) in [(&mut of_a, &a), (&mut of_b, &b), (&mut of_c, &c)] {
            clock.tick(who.task);
        }
        let mut uses = Uses::default();
        assert!(add(&mut uses, &a, &of_a, 0..8, false).is_ok());
        assert!(add(&mut uses, &b, &of_b, 4..12, false).is_ok());
        of_c.join(&of_a);
        let error = add(&mut uses, &c, &of_c, 6..20, true).unwrap_err().to_error("c");
        let Error::Race { first, second, bytes, .. } = error else { panic!("{error}") };
        assert_eq!((first.call, first.writes, second.call, second.writes), ("b", false, "c", true));
        assert_eq!(bytes, 6..12);
        of_c.join(&of_b);
        assert!(add(&mut uses, &c, &of_c, 6..20, true).is_ok());
        // Bytes that touch are not bytes that overlap.
        assert!(add(&mut uses, &b, &of_b, 20..24, true).is_ok());
        assert!(add(&mut uses, &b, &of_b, 19..20, false).is_err());
    }

    #[test]
    fn what_a_write_covers_is_forgotten() {
        let (a, mut of_a) = (actor("a"), VectorClock::default());
        of_a.tick(a.task);
        let mut uses = Uses::default();
        for at in 0..100 {
            add(&mut uses, &a, &of_a, at..at + 1, at % 2 == 0).unwrap();
        }
        add(&mut uses, &a, &of_a, 0..200, true).unwrap();
        assert_eq!(uses.0.len(), 1);
    }
}
