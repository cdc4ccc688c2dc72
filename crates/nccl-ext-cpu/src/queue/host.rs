//! Host threads: which rank they belong to, and what they have waited for.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use nccl_ext_core::Error;

use super::clock::{Actor, Clock, Moment, TaskId, VectorClock};
use crate::lock::lock;

/// A rank of a world whose calls return before their work is done.
pub(crate) struct Rank {
    id: RankId,
    device: i32,
    seed: u64,
    actor: Actor,
    /// What its host threads have waited for.
    host: Mutex<VectorClock>,
    /// Nanoseconds that streams of its world have slept as the seed says.
    delayed: Arc<AtomicU64>,
    fail: Box<dyn Fn(&Error) + Send + Sync>,
}

/// Names a [`Rank`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RankId(u64);

/// What threads that belong to no rank have waited for, which counts for everybody, and what anybody
/// has, which counts for them: they start the ranks' threads and take over from them, which nothing
/// else tells.
struct Others {
    actor: Actor,
    theirs: VectorClock,
    all: VectorClock,
}

static OTHERS: LazyLock<Mutex<Others>> = LazyLock::new(|| {
    let actor = Actor { task: TaskId::new(), name: "a host thread".into(), call: "" };
    let (theirs, all) = (VectorClock::default(), VectorClock::default());
    Mutex::new(Others { actor, theirs, all })
});

static RANKS: Mutex<Vec<Weak<Rank>>> = Mutex::new(Vec::new());

thread_local! {
    static MINE: RefCell<Option<Arc<Rank>>> = const { RefCell::new(None) };
}

impl Rank {
    /// A rank to be; `fail` tells its peers that it will not come.
    pub(crate) fn new(
        rank: usize,
        device: i32,
        seed: u64,
        delayed: Arc<AtomicU64>,
        fail: Box<dyn Fn(&Error) + Send + Sync>,
    ) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = RankId(NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("a host thread of rank {rank}").into();
        let actor = Actor { task: TaskId::new(), name, call: "" };
        let host = Mutex::default();
        let seed = seed ^ (rank as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let made = Arc::new(Self { id, device, seed, actor, host, delayed, fail });
        let mut ranks = lock(&RANKS);
        ranks.retain(|rank| rank.strong_count() > 0);
        ranks.push(Arc::downgrade(&made));
        made
    }

    pub(crate) fn find(id: RankId) -> Option<Arc<Self>> {
        lock(&RANKS).iter().filter_map(Weak::upgrade).find(|rank| rank.id == id)
    }

    pub(crate) fn id(&self) -> RankId {
        self.id
    }

    pub(super) fn device(&self) -> i32 {
        self.device
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn note_delay(&self, nanoseconds: u64) {
        self.delayed.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, error: &Error) {
        (self.fail)(error);
    }

    /// "rank 1", as in "stream 3 of rank 1".
    pub(super) fn words(&self) -> &str {
        self.actor.name.rsplit(" of ").next().unwrap_or_default()
    }
}

/// From now on the calling thread belongs to a rank.
pub(crate) fn belong_to(rank: &Arc<Rank>) {
    MINE.with_borrow_mut(|mine| {
        if mine.as_ref().is_some_and(|mine| mine.id == rank.id) {
            return;
        }
        // One thread that was another rank's before does one thing after the other.
        if let Some(before) = mine.replace(Arc::clone(rank)) {
            let known = lock(&before.host).clone();
            lock(&rank.host).join(&known);
        }
    });
}

/// The rank that the calling thread belongs to.
pub(super) fn mine() -> Option<Arc<Rank>> {
    MINE.with_borrow(Option::clone)
}

/// What the calling thread knows to have happened.
pub(super) fn known() -> VectorClock {
    match mine() {
        Some(rank) => {
            let mut known = lock(&rank.host).clone();
            known.join(&lock(&OTHERS).theirs);
            known
        }
        None => lock(&OTHERS).all.clone(),
    }
}

/// The calling thread has waited for what `clock` says.
pub(super) fn learn(clock: &VectorClock) {
    let rank = mine();
    let mut others = lock(&OTHERS);
    others.all.join(clock);
    match rank {
        Some(rank) => lock(&rank.host).join(clock),
        None => others.theirs.join(clock),
    }
}

/// The calling thread does something itself.
pub(super) fn act<T>(call: &'static str, what: impl FnOnce(&Actor, u64, &VectorClock) -> T) -> T {
    let moment = moment(call);
    what(&moment.actor, moment.time, &moment.before)
}

/// The clock of a thread that belongs to a rank; of others an empty one.
pub(super) fn clock() -> Clock {
    Clock(mine().map(|_| Arc::new(moment("a call"))))
}

fn moment(call: &'static str) -> Moment {
    let mut before = known();
    let (mut actor, time) = match mine() {
        Some(rank) => (rank.actor.clone(), lock(&rank.host).tick(rank.actor.task)),
        None => {
            let others = &mut *lock(&OTHERS);
            let time = others.theirs.tick(others.actor.task);
            (others.actor.clone(), time)
        }
    };
    let mut now = VectorClock::default();
    now.at(actor.task, time);
    before.join(&now);
    lock(&OTHERS).all.join(&now);
    actor.call = call;
    Moment { actor, time, before }
}
