//! How posts meet: waiting for all of them, and every reason not to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nccl_ext_core::Error;
use nccl_ext_core::raw::ncclResult_t;

use super::sequence::{Descriptor, OperationTag, Post, Sequence, SequenceId, is_staged};
use crate::config::CpuConfig;
use crate::lock::lock;
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal};

pub(super) struct Failure {
    pub(super) rank: usize,
    pub(super) error: Arc<Error>,
    /// Where ranks were waiting when one of them ran out of time: all of them did.
    timed_out: Option<(SequenceId, u64)>,
}

pub(super) struct State {
    pub(super) sequences: BTreeMap<SequenceId, Sequence>,
    pub(super) failure: Option<Failure>,
    pub(super) gone: Vec<Option<Arc<Error>>>,
    /// The operation that each rank sleeps in until all have posted it.
    waiting: Vec<Option<(SequenceId, u64)>>,
}

/// Ranks that share a unique id.
pub(super) struct World {
    pub(super) size: usize,
    pub(super) timeout: Duration,
    /// At least one.
    pub(super) devices: u32,
    /// The seed of a world whose calls return before their work is done.
    pub(super) deferred: Option<u64>,
    /// Nanoseconds that its streams slept as the seed said.
    pub(super) delayed: Arc<AtomicU64>,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

/// What becomes of a post when its rank gives up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenGivenUp {
    Withdraw,
    KeepPosted,
}

impl World {
    pub(super) fn new(size: usize, config: &CpuConfig) -> Self {
        let state = State {
            sequences: BTreeMap::from([(SequenceId::COMM, Sequence::new(size))]),
            failure: None,
            gone: vec![None; size],
            waiting: vec![None; size],
        };
        let (timeout, devices) = (config.timeout, config.devices.max(1));
        Self {
            size,
            timeout,
            devices,
            deferred: config.deferred,
            delayed: Arc::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// How long streams have slept since `then`: a seed's delays use up nobody's time.
    fn delayed_since(&self, then: u64) -> Duration {
        Duration::from_nanos(self.delayed.load(Ordering::Relaxed).saturating_sub(then))
    }

    pub(super) fn fail(&self, rank: usize, error: Error) {
        lock(&self.state).fail(rank, error, None);
        self.changed.notify_all();
    }

    /// Shows `descriptor` to the peers as this rank's next operation.
    pub(super) fn post<D: Descriptor>(
        &self,
        rank: usize,
        sequence: SequenceId,
        descriptor: &D,
        staged: bool,
    ) -> Outcome<u64> {
        let tag = OperationTag::of(descriptor);
        let clock = queue::clock();
        let mut state = lock(&self.state);
        state.check(rank)?;
        let entry = state.sequence(sequence)?;
        let operation = entry.posted[rank] + 1;
        let bank = Sequence::bank(operation);
        let other = (0..self.size)
            .filter(|&peer| entry.posted[peer] >= operation)
            .find_map(|peer| entry.posts[bank][peer].as_ref().map(|post| (peer, post.tag)));
        if let Some((peer, other)) = other.filter(|(_, other)| *other != tag) {
            let refusal = state.mismatch(rank, tag, peer, other);
            self.changed.notify_all();
            return Err(refusal);
        }
        let descriptor = core::ptr::from_ref(descriptor).cast();
        entry.posts[bank][rank] = Some(Post { tag, descriptor, staged, clock });
        entry.posted[rank] = operation;
        if entry.all_posted(operation) {
            self.changed.notify_all();
        }
        Ok(operation)
    }

    /// Waits until all ranks have posted the operation, and comes after what they did before they
    /// posted.
    pub(super) fn await_posts(
        &self,
        rank: usize,
        sequence: SequenceId,
        operation: u64,
        phase: &'static str,
        when_given_up: WhenGivenUp,
    ) -> Outcome {
        let starts = self.await_starts(rank, sequence, operation, phase, when_given_up)?;
        starts.iter().for_each(queue::join);
        Ok(())
    }

    /// Waits until all ranks have posted the operation; what happened before each did.
    pub(super) fn await_starts(
        &self,
        rank: usize,
        sequence: SequenceId,
        operation: u64,
        phase: &'static str,
        when_given_up: WhenGivenUp,
    ) -> Outcome<Vec<queue::Clock>> {
        let (start, delayed) = (Instant::now(), self.delayed.load(Ordering::Relaxed));
        let mut state = lock(&self.state);
        let refusal = loop {
            let entry = state.sequence(sequence)?;
            if entry.all_posted(operation) {
                let starts = entry.starts(operation);
                state.waiting[rank] = None;
                return Ok(starts);
            }
            if let Some(refusal) = state.obstacle(rank, sequence, operation, start) {
                break refusal;
            }
            let waited = start.elapsed().saturating_sub(self.delayed_since(delayed));
            if waited >= self.timeout {
                let ranks = state.sequence(sequence)?.missing(operation).collect();
                let error = Error::Timeout { phase, ranks, waited };
                state.fail(rank, error.clone(), Some((sequence, operation)));
                break Refusal::error(error);
            }
            state.waiting[rank] = Some((sequence, operation));
            let left = self.timeout - waited;
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting[rank] = None;
        if when_given_up == WhenGivenUp::Withdraw {
            let entry = state.sequence(sequence)?;
            entry.posted[rank] = operation - 1;
            entry.posts[Sequence::bank(operation)][rank] = None;
        }
        drop(state);
        self.changed.notify_all();
        Err(refusal)
    }

    /// What happened before each rank was done with its last operation.
    pub(super) fn ends(&self, sequence: SequenceId) -> Vec<queue::Clock> {
        lock(&self.state).sequences.get(&sequence).map_or_else(Vec::new, |entry| entry.ends.clone())
    }

    pub(super) fn has_staged(&self, sequence: SequenceId, operation: u64) -> bool {
        lock(&self.state).sequences.get(&sequence).is_some_and(|entry| entry.has_staged(operation))
    }

    /// From now on a rank's post is its staged copy; the full descriptor has no new readers.
    pub(super) fn replace_by_staged<D: Descriptor>(
        &self,
        rank: usize,
        sequence: SequenceId,
        operation: u64,
        copy: *const D,
    ) {
        let mut state = lock(&self.state);
        if let Some(entry) = state.sequences.get_mut(&sequence)
            && let Some(post) = &mut entry.posts[Sequence::bank(operation)][rank]
        {
            post.descriptor = copy.cast();
            post.staged = true;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until ranks in the full operation have left staged copies. No time-out: they are
    /// copying, which ends.
    pub(super) fn await_staged(&self, sequence: SequenceId, operation: u64) -> Outcome {
        let mut state = lock(&self.state);
        loop {
            let entry = state.sequence(sequence)?;
            if entry.is_staged(operation) {
                return Ok(());
            }
            let posts = entry.posts[Sequence::bank(operation)].iter();
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
    pub(super) unsafe fn descriptors<'a, D: Descriptor>(
        &self,
        sequence: SequenceId,
        operation: u64,
    ) -> Vec<&'a D> {
        let state = lock(&self.state);
        let Some(entry) = state.sequences.get(&sequence) else { return Vec::new() };
        let posts = entry.posts[Sequence::bank(operation)].iter().flatten();
        // SAFETY: this function's contract; equal tags mean equal types.
        posts.map(|post| unsafe { &*post.descriptor.cast::<D>() }).collect()
    }
}

impl State {
    /// The first failure is the one that everybody hears of.
    pub(super) fn fail(&mut self, rank: usize, error: Error, timed_out: Option<(SequenceId, u64)>) {
        if self.failure.is_none() {
            self.failure = Some(Failure { rank, error: Arc::new(error), timed_out });
        }
    }

    pub(super) fn is_lost(&self, rank: usize) -> bool {
        self.gone[rank].is_some() || self.failure.as_ref().is_some_and(|f| f.rank == rank)
    }

    pub(super) fn sequence(&mut self, sequence: SequenceId) -> Outcome<&mut Sequence> {
        self.sequences.get_mut(&sequence).ok_or_else(|| {
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
        sequence: SequenceId,
        operation: u64,
        start: Instant,
    ) -> Option<Refusal> {
        // Everybody who waited for the same ranks ran out of time, not only the first to notice.
        if let Some(Failure { error, timed_out, .. }) = &self.failure
            && *timed_out == Some((sequence, operation))
            && let Error::Timeout { phase, ranks, .. } = &**error
        {
            let (phase, ranks, waited) = (*phase, ranks.clone(), start.elapsed());
            return Some(Refusal::error(Error::Timeout { phase, ranks, waited }));
        }
        if let Err(refusal) = self.check(rank) {
            return Some(refusal);
        }
        let entry = self.sequences.get(&sequence)?;
        let gone = |peer: usize| Some((peer, Arc::clone(self.gone[peer].as_ref()?)));
        let gone = entry.missing(operation).find_map(gone);
        if let Some((peer, error)) = gone {
            self.fail(peer, Error::clone(&error), None);
            return Some(Refusal::error(Error::PeerFailed { rank: peer, error }));
        }
        let here = entry.posts[Sequence::bank(operation)][rank].as_ref()?.tag;
        let elsewhere = |peer: usize| Some((peer, self.asleep_elsewhere(peer, sequence, rank)?));
        let elsewhere = entry.missing(operation).find_map(elsewhere);
        let (peer, there) = elsewhere?;
        Some(self.mismatch(rank, here, peer, there))
    }

    /// What `peer` is in, if it sleeps in another sequence than `sequence` until `rank` comes there:
    /// then neither will ever see the other.
    fn asleep_elsewhere(
        &self,
        peer: usize,
        sequence: SequenceId,
        rank: usize,
    ) -> Option<OperationTag> {
        let (elsewhere, operation) = self.waiting[peer].filter(|(at, _)| *at != sequence)?;
        let entry = self.sequences.get(&elsewhere)?;
        if entry.posted[rank] >= operation {
            return None;
        }
        entry.posts[Sequence::bank(operation)][peer].as_ref().map(|post| post.tag)
    }

    fn mismatch(
        &mut self,
        rank: usize,
        mine: OperationTag,
        peer: usize,
        theirs: OperationTag,
    ) -> Refusal {
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
