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

mod line;
mod rendezvous;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nccl_ext_core::Error;

use line::Line;
pub(crate) use line::{COMM, Descriptor, KEYS, LineId};
use rendezvous::{OnFailure, State, World};

use crate::config::{CpuConfig, ID_BYTES};
use crate::refusal::{FailureClass, Outcome, Refusal};

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

    /// Whether a rank will not come to an operation any more: it has left, or failed the world.
    pub(crate) fn is_lost(&self, rank: usize) -> bool {
        lock(&self.world.state).is_lost(rank)
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
