//! How the ranks of a group with masks meet (EP 6.2).
//!
//! Such ranks come and go, and each has a view of its own on who takes part. So nobody reads
//! anybody's memory: a sender leaves copies of its rows in the boxes of those that it sends to,
//! and a receiver waits for its own boxes alone, as long as the group's time-out says.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::packet::Packet;
use crate::lock::lock;

/// The boxes of a group. All its ranks own them.
pub(crate) struct Mailboxes {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// By receiver, then sender: one for each parity of the operation's number, as the vendor's
    /// buffers have it.
    boxes: Vec<[Option<Arc<Packet>>; 2]>,
    cleans: Vec<CleanCalls>,
}

/// A rank's `ncclEpMaskClean` calls.
#[derive(Clone, Copy, Default)]
struct CleanCalls {
    entered: u64,
    emptied: u64,
    at: CleanStep,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum CleanStep {
    #[default]
    Outside,
    Entered,
    Emptied,
}

/// How a rank waits for the others.
pub(crate) struct Patience<'a> {
    pub(crate) me: usize,
    pub(crate) timeout: Duration,
    /// Whether a rank will not come any more.
    pub(crate) lost: &'a dyn Fn(usize) -> bool,
}

/// How often a waiting rank looks whether others are lost, of which the boxes hear nothing.
const LOST_CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl Mailboxes {
    pub(crate) fn new(ranks: usize) -> Self {
        let boxes = (0..ranks * ranks).map(|_| [None, None]).collect();
        let state = State { boxes, cleans: vec![CleanCalls::default(); ranks] };
        Self { ranks, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sends a rank's packets of its operation of that number.
    pub(crate) fn send(&self, me: usize, operation: u64, packets: Vec<(usize, Packet)>) {
        let bank = bank(operation);
        let mut state = self.lock();
        for (to, packet) in packets {
            state.boxes[to * self.ranks + me][bank] = Some(Arc::new(packet));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the packets of every rank that is `active`; the second result names those of which
    /// there was none in time.
    pub(crate) fn collect(
        &self,
        operation: u64,
        active: &[bool],
        patience: &Patience<'_>,
    ) -> (Vec<Option<Arc<Packet>>>, Vec<usize>) {
        let bank = bank(operation);
        let mut packets = vec![None; self.ranks];
        let own = patience.me * self.ranks;
        let late = self.wait(self.lock(), active, patience, |state, from| {
            packets[from] = state.boxes[own + from][bank].take();
            packets[from].is_some()
        });
        // Of ranks that are left out nothing old stays, lest it be taken for new when they are
        // back.
        let mut state = self.lock();
        for from in (0..self.ranks).filter(|from| packets[*from].is_none()) {
            for packet in &mut state.boxes[own + from] {
                packet.take_if(|packet| packet.number <= operation);
            }
        }
        drop(state);
        (packets, late)
    }

    /// Waits until `came` holds for every active rank, or gives those up for which it does not.
    fn wait(
        &self,
        mut state: MutexGuard<'_, State>,
        active: &[bool],
        patience: &Patience<'_>,
        mut came: impl FnMut(&mut State, usize) -> bool,
    ) -> Vec<usize> {
        let start = Instant::now();
        let mut missing: Vec<_> = (0..self.ranks).filter(|&rank| active[rank]).collect();
        let mut late = Vec::new();
        loop {
            missing.retain(|&rank| !came(&mut state, rank));
            // A rank that is lost has sent all that it ever will, and this lock is held.
            late.extend(missing.extract_if(.., |&mut rank| (patience.lost)(rank)));
            let left = patience.timeout.saturating_sub(start.elapsed());
            if missing.is_empty() || left.is_zero() {
                late.append(&mut missing);
                late.sort_unstable();
                return late;
            }
            let result = self.changed.wait_timeout(state, left.min(LOST_CHECK_INTERVAL));
            state = result.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Empties this rank's boxes between two barriers with the ranks that are active in its view.
    /// A rank that masks itself skips those.
    pub(crate) fn clean(&self, active: &[bool], patience: &Patience<'_>) {
        let me = patience.me;
        let mut state = self.lock();
        // Who is inside now has come to this meeting; who was inside earlier has not.
        let before: Vec<_> = state.cleans.iter().map(CleanCalls::before).collect();
        state.cleans[me].entered += 1;
        state.cleans[me].at = CleanStep::Entered;
        self.changed.notify_all();
        let mut others = active.to_vec();
        if !active[me] {
            others.fill(false);
        }
        others[me] = false;
        for rank in self.wait(state, &others, patience, |state, rank| {
            state.cleans[rank].entered > before[rank].0
        }) {
            others[rank] = false;
        }
        let mut state = self.lock();
        for own in &mut state.boxes[me * self.ranks..][..self.ranks] {
            *own = [None, None];
        }
        state.cleans[me].emptied += 1;
        state.cleans[me].at = CleanStep::Emptied;
        self.changed.notify_all();
        self.wait(state, &others, patience, |state, rank| {
            state.cleans[rank].emptied > before[rank].1
        });
        self.lock().cleans[me].at = CleanStep::Outside;
    }
}

impl CleanCalls {
    /// How often the rank had entered and emptied before the call that it may be in.
    fn before(&self) -> (u64, u64) {
        let entered = u64::from(self.at != CleanStep::Outside);
        let emptied = u64::from(self.at == CleanStep::Emptied);
        (self.entered - entered, self.emptied - emptied)
    }
}

fn bank(operation: u64) -> usize {
    usize::from(operation % 2 == 1)
}
