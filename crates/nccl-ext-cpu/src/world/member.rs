//! One rank, and how it meets the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use nccl_ext_core::Error;

use super::meeting::{State, WhenGivenUp, World};
use super::sequence::{Descriptor, Sequence, SequenceId};
use crate::lock::lock;
use crate::queue::{self, Deferral};
use crate::refusal::Outcome;

/// One rank's place in its world. An `ncclComm_t` points to one.
pub(crate) struct Member {
    world: Arc<World>,
    rank: usize,
    groups: AtomicU64,
    collectives: Arc<queue::CallOrder>,
    /// The rank as streams know it, where they run its calls.
    deferred: Option<Arc<queue::Rank>>,
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(rank) = &self.deferred {
            queue::end_default_streams(rank);
        }
    }
}

impl Member {
    pub(super) fn new(world: Arc<World>, rank: usize) -> Self {
        let device = (rank as u32 % world.devices) as i32;
        let deferred = world.deferred.map(|seed| {
            let theirs = Arc::clone(&world);
            let fail = move |error: &Error| theirs.fail(rank, error.clone());
            let delayed = Arc::clone(&world.delayed);
            let made = queue::Rank::new(rank, device, seed, delayed, Box::new(fail));
            queue::belong_to(&made);
            made
        });
        Self { world, rank, groups: AtomicU64::new(0), collectives: Arc::default(), deferred }
    }

    /// The ordinal of the device that this rank is on.
    pub(crate) fn device(&self) -> i32 {
        (self.rank as u32 % self.world.devices) as i32
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Whether this rank's calls are complete when they return.
    pub(crate) fn deferral(&self) -> Deferral {
        self.deferred.as_ref().map_or(Deferral::Never, |rank| Deferral::Of(rank.id()))
    }

    /// The order of this rank's NCCL collectives.
    pub(crate) fn collectives(&self) -> &Arc<queue::CallOrder> {
        &self.collectives
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

    /// Why the world has failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        lock(&self.world.state).failure.as_ref().map(|failure| {
            let (rank, error) = (failure.rank, Arc::clone(&failure.error));
            if rank == self.rank { Error::clone(&error) } else { Error::PeerFailed { rank, error } }
        })
    }

    /// Whether the world has failed.
    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.world.state).failure.is_some()
    }

    /// Whether a rank will not come to an operation any more: it has left, or failed the world.
    pub(crate) fn is_lost(&self, rank: usize) -> bool {
        lock(&self.world.state).is_lost(rank)
    }

    /// Opens a sequence, which every rank does at the same point of its program.
    pub(crate) fn open(&self, sequence: SequenceId) {
        let mut state = lock(&self.world.state);
        state.sequences.entry(sequence).or_insert_with(|| Sequence::new(self.world.size));
    }

    /// Closes a sequence; it goes when every rank has closed it.
    pub(crate) fn close(&self, sequence: SequenceId) {
        let mut state = lock(&self.world.state);
        let Some(entry) = state.sequences.get_mut(&sequence) else { return };
        entry.closed += 1;
        if entry.closed == self.world.size {
            state.sequences.remove(&sequence);
        }
    }

    /// One operation with all ranks: `work` runs on every rank's thread at the same time, between
    /// two barriers, and sees everybody's descriptor, indexed by rank, and the operation's number
    /// on the sequence.
    pub(crate) fn collective<D: Descriptor, T>(
        &self,
        sequence: SequenceId,
        descriptor: &D,
        work: impl FnOnce(&[&D], u64) -> T,
    ) -> Outcome<T> {
        let result = self.collective_among_staged(sequence, descriptor, work, |_| None)?;
        // Nobody leaves before everybody is done.
        self.world.ends(sequence).iter().for_each(queue::join);
        Ok(result)
    }

    /// The same in a sequence where peers may have staged. When one has, `stage` gives a copy of
    /// the descriptor that stays valid until this rank posts the second operation from here.
    pub(crate) fn collective_among_staged<D: Descriptor, T>(
        &self,
        sequence: SequenceId,
        descriptor: &D,
        work: impl FnOnce(&[&D], u64) -> T,
        stage: impl FnOnce(u64) -> Option<*const D>,
    ) -> Outcome<T> {
        let operation = self.world.post(self.rank, sequence, descriptor, false)?;
        self.world.await_posts(self.rank, sequence, operation, D::NAME, WhenGivenUp::Withdraw)?;
        let guard = Working { member: self, sequence, operation };
        // SAFETY: everybody has posted this operation with this descriptor type, and every full
        // descriptor lives until `guard` of its owner has seen this rank done.
        let peers = unsafe { self.world.descriptors::<D>(sequence, operation) };
        let result = work(&peers, operation);
        if self.world.has_staged(sequence, operation)
            && let Some(copy) = stage(operation)
        {
            self.world.replace_by_staged(self.rank, sequence, operation, copy);
        }
        drop(guard);
        Ok(result)
    }

    /// One operation with all ranks, as [`collective`](Self::collective), that orders nothing: `work`
    /// joins the clocks of those ranks, of their posts and indexed by rank, that it comes after.
    pub(crate) fn meet<D: Descriptor, T>(
        &self,
        sequence: SequenceId,
        descriptor: &D,
        work: impl FnOnce(&[&D], &[queue::Clock]) -> T,
    ) -> Outcome<T> {
        let operation = self.world.post(self.rank, sequence, descriptor, false)?;
        let give_up = WhenGivenUp::Withdraw;
        let starts = self.world.await_starts(self.rank, sequence, operation, D::NAME, give_up)?;
        let guard = Working { member: self, sequence, operation };
        // SAFETY: as in `collective_among_staged`.
        let peers = unsafe { self.world.descriptors::<D>(sequence, operation) };
        let result = work(&peers, &starts);
        drop(guard);
        Ok(result)
    }

    /// The number that this rank's next operation on a sequence will have.
    pub(crate) fn next_operation(&self, sequence: SequenceId) -> Outcome<u64> {
        Ok(lock(&self.world.state).sequence(sequence)?.posted[self.rank] + 1)
    }

    /// Posts without waiting for anybody.
    ///
    /// # Safety
    /// What `descriptor` points to, itself included, stays valid and unchanged until this rank
    /// posts the second operation from here on the sequence, or all ranks have closed the sequence.
    pub(crate) unsafe fn stage<D: Descriptor>(
        &self,
        sequence: SequenceId,
        descriptor: &D,
    ) -> Outcome<u64> {
        self.world.post(self.rank, sequence, descriptor, true)
    }

    /// Does this rank's work on an operation that it has staged, once all have posted theirs.
    pub(crate) fn complete<D: Descriptor, T>(
        &self,
        sequence: SequenceId,
        operation: u64,
        work: impl FnOnce(&[&D]) -> T,
    ) -> Outcome<T> {
        self.world.await_posts(self.rank, sequence, operation, D::NAME, WhenGivenUp::KeepPosted)?;
        self.world.await_staged(sequence, operation)?;
        // SAFETY: everybody has posted this operation with this descriptor type, and staged
        // descriptors live until their owners post the second operation from there, before which
        // they wait for this rank's next post.
        let peers = unsafe { self.world.descriptors::<D>(sequence, operation) };
        Ok(work(&peers))
    }

    /// Waits until all ranks have called it, on the calling thread: first until this rank's streams
    /// have run what they were given, since that comes before it on the communicator.
    pub(crate) fn barrier<D: Descriptor>(&self, descriptor: &D) -> Outcome {
        queue::drain(self.deferral())?;
        self.collective(SequenceId::COMM, descriptor, |_, _| ())
    }
}

/// A rank between the two barriers. Its drop, also in a panic, is the second one.
struct Working<'a> {
    member: &'a Member,
    sequence: SequenceId,
    operation: u64,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let Self { member, sequence, operation } = *self;
        let world = &member.world;
        let end = queue::clock();
        let mut state = lock(&world.state);
        if let Some(entry) = state.sequences.get_mut(&sequence) {
            entry.done[member.rank] = operation;
            entry.ends[member.rank] = end;
        }
        let done =
            |state: &State| state.sequences.get(&sequence).is_none_or(|l| l.is_done(operation));
        if done(&state) {
            world.changed.notify_all();
        }
        // No time-out: everybody is copying, which ends.
        while !done(&state) {
            state = world.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
