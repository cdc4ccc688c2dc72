//! A world: the ranks that share a unique id, and how they meet.
//!
//! Every collective is the same dance. A rank *posts* a descriptor that points to its buffers,
//! waits until all have posted, *works* on everybody's buffers, and waits until all are done. Only
//! the first wait can end early, and a rank that gives up there takes its post back under the
//! lock, before anybody could have seen it complete. Once all have posted, everyone goes on to the
//! end, for copying cannot block. So no rank returns while a peer still touches its memory,
//! whatever fails.
//!
//! Posts are counted on *lines*: one for the communicator, and one for each low-latency group,
//! whose staged sends stay posted while the communicator is used for other things. What a *staged*
//! post shows belongs to the group and outlives the call, so nobody waits for its readers. A rank
//! that meets staged posts in a full operation leaves a staged copy of its own behind as well: the
//! others may come for it much later.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nccl_ext_core::Error;
use nccl_ext_core::raw::ncclResult_t;

use crate::config::{CpuConfig, ID_BYTES};
use crate::refusal::{FailureClass, Outcome, Refusal};

/// What a rank shows to its peers during one operation.
///
/// # Safety
/// Peers read the value from their threads while the operation runs; what it points to may be
/// used by them as the operation's code says.
pub(crate) unsafe trait Descriptor: 'static {
    /// The operation, as error messages call it.
    const NAME: &'static str;
    /// Names of the numbers in [`key`](Self::key); empty for those not in use.
    const KEY: [&'static str; KEYS] = [""; KEYS];

    /// What must be equal on all ranks for their calls to be the same operation.
    fn key(&self) -> [u64; KEYS] {
        [0; KEYS]
    }
}

/// Numbers in an operation's key.
pub(crate) const KEYS: usize = 6;

/// Which operation a rank has posted.
#[derive(Clone, Copy, PartialEq)]
struct Tag {
    kind: TypeId,
    name: &'static str,
    names: [&'static str; KEYS],
    key: [u64; KEYS],
}

impl Tag {
    fn of<D: Descriptor>(descriptor: &D) -> Self {
        Self { kind: TypeId::of::<D>(), name: D::NAME, names: D::KEY, key: descriptor.key() }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let named = self.names.iter().zip(self.key).filter(|(name, _)| !name.is_empty());
        for (i, (name, value)) in named.enumerate() {
            write!(f, "{}{name} {value}", if i == 0 { " with " } else { ", " })?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Post {
    tag: Tag,
    descriptor: *const (),
    /// Whether the descriptor outlives the operation, or its readers have all gone.
    staged: bool,
}

// SAFETY: the pointer is only followed as `Descriptor` allows.
unsafe impl Send for Post {}

/// Operations of all ranks, in order.
struct Line {
    /// How many operations each rank has posted, and how many it is done with.
    posted: Vec<u64>,
    done: Vec<u64>,
    /// The last two posts of each rank. Two are enough: who posts operation n+2 is done with n+1,
    /// which everybody posted after being done with n.
    posts: [Vec<Option<Post>>; 2],
    /// Ranks that have closed it.
    closed: usize,
}

impl Line {
    fn new(size: usize) -> Self {
        let posts = || vec![None; size];
        Self { posted: vec![0; size], done: vec![0; size], posts: [posts(), posts()], closed: 0 }
    }

    fn bank(operation: u64) -> usize {
        usize::from(operation % 2 == 1)
    }

    fn is_open(&self, operation: u64) -> bool {
        self.posted.iter().all(|&posted| posted >= operation)
    }

    fn missing(&self, operation: u64) -> impl Iterator<Item = usize> {
        (0..self.posted.len()).filter(move |&rank| self.posted[rank] < operation)
    }

    /// Whether nobody reads full descriptors of the operation any more.
    fn is_done(&self, operation: u64) -> bool {
        let mut posts = self.done.iter().zip(&self.posts[Self::bank(operation)]);
        posts.all(|(&done, post)| done >= operation || is_staged(post))
    }

    /// Whether everything that was posted can be read by those who staged.
    fn is_staged(&self, operation: u64) -> bool {
        self.posts[Self::bank(operation)].iter().all(is_staged)
    }

    fn has_staged(&self, operation: u64) -> bool {
        self.posts[Self::bank(operation)].iter().any(is_staged)
    }
}

fn is_staged(post: &Option<Post>) -> bool {
    post.as_ref().is_some_and(|post| post.staged)
}

struct Failure {
    rank: usize,
    error: Arc<Error>,
    /// Where ranks were waiting when one of them ran out of time: all of them did.
    timed_out: Option<(LineId, u64)>,
}

struct State {
    lines: BTreeMap<LineId, Line>,
    failure: Option<Failure>,
    gone: Vec<Option<Arc<Error>>>,
    /// The operation that each rank sleeps in until all have posted it.
    waiting: Vec<Option<(LineId, u64)>>,
}

/// Names a line. Ranks create lines in the same order and so agree on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineId(pub(crate) u64);

/// The communicator's own line.
pub(crate) const COMM: LineId = LineId(0);

/// Ranks that share a unique id.
struct World {
    size: usize,
    timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

/// One rank's place in its world. An `ncclComm_t` points to one.
pub(crate) struct Member {
    world: Arc<World>,
    rank: usize,
    groups: AtomicU64,
}

/// Worlds whose ranks have not all come yet.
static JOINING: Mutex<BTreeMap<[u8; ID_BYTES], Joining>> = Mutex::new(BTreeMap::new());

struct Joining {
    world: Arc<World>,
    joined: Vec<bool>,
}

struct Join;

// SAFETY: it points to nothing.
unsafe impl Descriptor for Join {
    const NAME: &'static str = "ncclCommInitRank";
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Panics are caught at the entry points and fail the world there; no critical section of this
    // module leaves its data half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    /// Joins the world of `id` and waits until all ranks have.
    pub(crate) fn join(
        id: [u8; ID_BYTES],
        config: &CpuConfig,
        size: usize,
        rank: usize,
    ) -> Outcome<Arc<Self>> {
        let world = {
            let mut joining = lock(&JOINING);
            let entry = joining.entry(id).or_insert_with(|| Joining {
                world: Arc::new(World::new(size, config.timeout)),
                joined: vec![false; size],
            });
            if entry.world.size != size {
                return Err(Refusal::argument(
                    FailureClass::Return,
                    "nranks",
                    "all ranks of a unique id give the same number of ranks",
                    entry.world.size,
                    size,
                ));
            }
            if std::mem::replace(&mut entry.joined[rank], true) {
                return Err(Refusal::argument(
                    FailureClass::Return,
                    "rank",
                    "every rank joins once",
                    "a rank that has not joined yet",
                    rank,
                ));
            }
            let world = Arc::clone(&entry.world);
            if entry.joined.iter().all(|&joined| joined) {
                joining.remove(&id);
            }
            world
        };
        let member = Arc::new(Self { world, rank, groups: AtomicU64::new(0) });
        member.barrier(&Join)?;
        Ok(member)
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.world.size
    }

    /// Whether both are ranks of one world.
    pub(crate) fn is_peer_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.world, &other.world)
    }

    /// Numbers this rank's groups, from 1: the same group has the same number on every rank.
    pub(crate) fn next_group(&self) -> u64 {
        self.groups.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Tells everybody that this rank will not come to the next operation, and why.
    pub(crate) fn fail(&self, error: &Error) {
        self.world.fail(self.rank, error.clone());
    }

    /// Leaves the world; whoever waits for this rank learns `reason`.
    pub(crate) fn leave(&self, reason: String) {
        let mut state = lock(&self.world.state);
        state.gone[self.rank].get_or_insert_with(|| Arc::new(Error::RankGone { reason }));
        drop(state);
        self.world.changed.notify_all();
    }

    /// Whether the world has failed.
    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.world.state).failure.is_some()
    }

    /// Opens a line, which every rank does at the same point of its program.
    pub(crate) fn open_line(&self, line: LineId) {
        let mut state = lock(&self.world.state);
        state.lines.entry(line).or_insert_with(|| Line::new(self.world.size));
    }

    /// Closes a line; it goes when every rank has closed it.
    pub(crate) fn close_line(&self, line: LineId) {
        let mut state = lock(&self.world.state);
        let Some(entry) = state.lines.get_mut(&line) else { return };
        entry.closed += 1;
        if entry.closed == self.world.size {
            state.lines.remove(&line);
        }
    }

    /// One operation with all ranks: `work` runs on every rank's thread at the same time, between
    /// two barriers, and sees everybody's descriptor, indexed by rank, and the operation's number
    /// on the line.
    pub(crate) fn collective<D: Descriptor, T>(
        &self,
        line: LineId,
        descriptor: &D,
        work: impl FnOnce(&[&D], u64) -> T,
    ) -> Outcome<T> {
        self.collective_among_staged(line, descriptor, work, |_| None)
    }

    /// The same on a line where peers may have staged. When one has, `stage` gives a copy of the
    /// descriptor that stays valid until this rank posts the second operation from here.
    pub(crate) fn collective_among_staged<D: Descriptor, T>(
        &self,
        line: LineId,
        descriptor: &D,
        work: impl FnOnce(&[&D], u64) -> T,
        stage: impl FnOnce(u64) -> Option<*const D>,
    ) -> Outcome<T> {
        let operation = self.world.post(self.rank, line, descriptor, false)?;
        self.world.await_posts(self.rank, line, operation, D::NAME, OnFailure::TakeBack)?;
        let guard = Working { member: self, line, operation };
        // SAFETY: everybody has posted this operation with this descriptor type, and every full
        // descriptor lives until `guard` of its owner has seen this rank done.
        let peers = unsafe { self.world.descriptors::<D>(line, operation) };
        let result = work(&peers, operation);
        if self.world.has_staged(line, operation)
            && let Some(copy) = stage(operation)
        {
            self.world.replace_by_staged(self.rank, line, operation, copy);
        }
        drop(guard);
        Ok(result)
    }

    /// The number that this rank's next operation on a line will have.
    pub(crate) fn next_operation(&self, line: LineId) -> Outcome<u64> {
        Ok(lock(&self.world.state).line(line)?.posted[self.rank] + 1)
    }

    /// Posts without waiting for anybody.
    ///
    /// # Safety
    /// What `descriptor` points to, itself included, stays valid and unchanged until this rank
    /// posts the second operation from here on the line, or all ranks have closed the line.
    pub(crate) unsafe fn stage<D: Descriptor>(&self, line: LineId, descriptor: &D) -> Outcome<u64> {
        self.world.post(self.rank, line, descriptor, true)
    }

    /// Does this rank's work on an operation that it has staged, once all have posted theirs.
    pub(crate) fn complete<D: Descriptor, T>(
        &self,
        line: LineId,
        operation: u64,
        work: impl FnOnce(&[&D]) -> T,
    ) -> Outcome<T> {
        self.world.await_posts(self.rank, line, operation, D::NAME, OnFailure::Leave)?;
        self.world.await_staged(line, operation)?;
        // SAFETY: everybody has posted this operation with this descriptor type, and staged
        // descriptors live until their owners post the second operation from there, before which
        // they wait for this rank's next post.
        let peers = unsafe { self.world.descriptors::<D>(line, operation) };
        Ok(work(&peers))
    }

    /// Waits until all ranks have called it.
    pub(crate) fn barrier<D: Descriptor>(&self, descriptor: &D) -> Outcome {
        self.collective(COMM, descriptor, |_, _| ())
    }
}

/// What becomes of a post when its rank gives up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnFailure {
    TakeBack,
    Leave,
}

/// A rank between the two barriers. Its drop, also in a panic, is the second one.
struct Working<'a> {
    member: &'a Member,
    line: LineId,
    operation: u64,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let Self { member, line, operation } = *self;
        let world = &member.world;
        let mut state = lock(&world.state);
        if let Some(entry) = state.lines.get_mut(&line) {
            entry.done[member.rank] = operation;
        }
        let done = |state: &State| state.lines.get(&line).is_none_or(|l| l.is_done(operation));
        if done(&state) {
            world.changed.notify_all();
        }
        // No time-out: everybody is copying, which ends.
        while !done(&state) {
            state = world.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl World {
    fn new(size: usize, timeout: Duration) -> Self {
        let state = State {
            lines: BTreeMap::from([(COMM, Line::new(size))]),
            failure: None,
            gone: vec![None; size],
            waiting: vec![None; size],
        };
        Self { size, timeout, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn fail(&self, rank: usize, error: Error) {
        lock(&self.state).fail(rank, error, None);
        self.changed.notify_all();
    }

    /// Shows `descriptor` to the peers as this rank's next operation.
    fn post<D: Descriptor>(
        &self,
        rank: usize,
        line: LineId,
        descriptor: &D,
        staged: bool,
    ) -> Outcome<u64> {
        let tag = Tag::of(descriptor);
        let mut state = lock(&self.state);
        state.check(rank)?;
        let entry = state.line(line)?;
        let operation = entry.posted[rank] + 1;
        let bank = Line::bank(operation);
        let other = (0..self.size)
            .filter(|&peer| entry.posted[peer] >= operation)
            .find_map(|peer| entry.posts[bank][peer].map(|post| (peer, post.tag)));
        if let Some((peer, other)) = other.filter(|(_, other)| *other != tag) {
            let refusal = state.mismatch(rank, tag, peer, other);
            self.changed.notify_all();
            return Err(refusal);
        }
        let descriptor = core::ptr::from_ref(descriptor).cast();
        entry.posts[bank][rank] = Some(Post { tag, descriptor, staged });
        entry.posted[rank] = operation;
        if entry.is_open(operation) {
            self.changed.notify_all();
        }
        Ok(operation)
    }

    /// Waits until all ranks have posted the operation.
    fn await_posts(
        &self,
        rank: usize,
        line: LineId,
        operation: u64,
        phase: &'static str,
        on_failure: OnFailure,
    ) -> Outcome {
        let start = Instant::now();
        let mut state = lock(&self.state);
        let refusal = loop {
            if state.line(line)?.is_open(operation) {
                state.waiting[rank] = None;
                return Ok(());
            }
            if let Some(refusal) = state.obstacle(rank, line, operation, start) {
                break refusal;
            }
            let waited = start.elapsed();
            if waited >= self.timeout {
                let ranks = state.line(line)?.missing(operation).collect();
                let error = Error::Timeout { phase, ranks, waited };
                state.fail(rank, error.clone(), Some((line, operation)));
                break Refusal::error(error);
            }
            state.waiting[rank] = Some((line, operation));
            let left = self.timeout - waited;
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting[rank] = None;
        if on_failure == OnFailure::TakeBack {
            let entry = state.line(line)?;
            entry.posted[rank] = operation - 1;
            entry.posts[Line::bank(operation)][rank] = None;
        }
        drop(state);
        self.changed.notify_all();
        Err(refusal)
    }

    fn has_staged(&self, line: LineId, operation: u64) -> bool {
        lock(&self.state).lines.get(&line).is_some_and(|entry| entry.has_staged(operation))
    }

    /// From now on a rank's post is its staged copy; the full descriptor has no new readers.
    fn replace_by_staged<D: Descriptor>(
        &self,
        rank: usize,
        line: LineId,
        operation: u64,
        copy: *const D,
    ) {
        let mut state = lock(&self.state);
        if let Some(entry) = state.lines.get_mut(&line)
            && let Some(post) = &mut entry.posts[Line::bank(operation)][rank]
        {
            post.descriptor = copy.cast();
            post.staged = true;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until ranks in the full operation have left staged copies. No time-out: they are
    /// copying, which ends.
    fn await_staged(&self, line: LineId, operation: u64) -> Outcome {
        let mut state = lock(&self.state);
        loop {
            let entry = state.line(line)?;
            if entry.is_staged(operation) {
                return Ok(());
            }
            let posts = entry.posts[Line::bank(operation)].iter();
            let mut left =
                posts.zip(&entry.done).map(|(post, &done)| !is_staged(post) && done >= operation);
            if let Some(rank) = left.position(|left| left) {
                let reason = format!("rank {rank} panicked in the operation");
                let error = Arc::new(Error::RankGone { reason });
                return Err(Refusal::error(Error::PeerFailed { rank, error }));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Everybody's descriptor of an operation that all have posted.
    ///
    /// # Safety
    /// All have posted the operation with a `D`, and the result is not used after this rank is
    /// done with it.
    unsafe fn descriptors<'a, D: Descriptor>(&self, line: LineId, operation: u64) -> Vec<&'a D> {
        let state = lock(&self.state);
        let Some(entry) = state.lines.get(&line) else { return Vec::new() };
        let posts = entry.posts[Line::bank(operation)].iter().flatten();
        // SAFETY: this function's contract; equal tags mean equal types.
        posts.map(|post| unsafe { &*post.descriptor.cast::<D>() }).collect()
    }
}

impl State {
    /// The first failure is the one that everybody hears of.
    fn fail(&mut self, rank: usize, error: Error, timed_out: Option<(LineId, u64)>) {
        if self.failure.is_none() {
            self.failure = Some(Failure { rank, error: Arc::new(error), timed_out });
        }
    }

    fn line(&mut self, line: LineId) -> Outcome<&mut Line> {
        self.lines.get_mut(&line).ok_or_else(|| {
            Refusal::usage(
                FailureClass::UndefinedBehaviour,
                "ep_group",
                "a group is used before it is destroyed",
                "a live group",
                "a destroyed one",
            )
        })
    }

    /// Whether `rank` may start an operation.
    fn check(&self, rank: usize) -> Outcome {
        if let Some(Failure { rank, error, .. }) = &self.failure {
            let error = Arc::clone(error);
            return Err(Refusal::error(Error::PeerFailed { rank: *rank, error }));
        }
        match &self.gone[rank] {
            Some(error) => Err(Refusal::error(Error::clone(error))),
            None => Ok(()),
        }
    }

    /// What keeps `rank` from ever seeing all posts of the operation.
    fn obstacle(
        &mut self,
        rank: usize,
        line: LineId,
        operation: u64,
        start: Instant,
    ) -> Option<Refusal> {
        // Everybody who waited for the same ranks ran out of time, not only the first to notice.
        if let Some(Failure { error, timed_out, .. }) = &self.failure
            && *timed_out == Some((line, operation))
            && let Error::Timeout { phase, ranks, .. } = &**error
        {
            let (phase, ranks, waited) = (*phase, ranks.clone(), start.elapsed());
            return Some(Refusal::error(Error::Timeout { phase, ranks, waited }));
        }
        if let Err(refusal) = self.check(rank) {
            return Some(refusal);
        }
        let entry = self.lines.get(&line)?;
        let gone = |peer: usize| Some((peer, Arc::clone(self.gone[peer].as_ref()?)));
        let gone = entry.missing(operation).find_map(gone);
        if let Some((peer, error)) = gone {
            self.fail(peer, Error::clone(&error), None);
            return Some(Refusal::error(Error::PeerFailed { rank: peer, error }));
        }
        let here = entry.posts[Line::bank(operation)][rank]?.tag;
        let elsewhere = |peer: usize| Some((peer, self.asleep_elsewhere(peer, line, rank)?));
        let elsewhere = entry.missing(operation).find_map(elsewhere);
        let (peer, there) = elsewhere?;
        Some(self.mismatch(rank, here, peer, there))
    }

    /// What `peer` is in, if it sleeps on another line than `line` until `rank` comes there: then
    /// neither will ever see the other.
    fn asleep_elsewhere(&self, peer: usize, line: LineId, rank: usize) -> Option<Tag> {
        let (elsewhere, operation) = self.waiting[peer].filter(|(at, _)| *at != line)?;
        let entry = self.lines.get(&elsewhere)?;
        if entry.posted[rank] >= operation {
            return None;
        }
        entry.posts[Line::bank(operation)][peer].map(|post| post.tag)
    }

    fn mismatch(&mut self, rank: usize, mine: Tag, peer: usize, theirs: Tag) -> Refusal {
        let error = Error::Native {
            call: mine.name,
            code: ncclResult_t::ncclInvalidUsage,
            detail: format!(
                "every rank makes the same calls in the same order, but rank {rank} is in {mine} \
                 and rank {peer} in {theirs}"
            ),
        };
        self.fail(rank, error.clone(), None);
        Refusal::error(error).with_class(FailureClass::UndefinedBehaviour)
    }
}
