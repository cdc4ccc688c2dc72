//! What a runtime knows of a communicator that it was used with.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nccl_ext_core::{Comm, Error, OutOfStep, Result};

use crate::fabric::Fabric;
use crate::gate::Ticket;
use crate::layout::Layout;
use crate::plan::{Conditions, Digest, Hasher, condition_words, layout_words};
use crate::settings::Settings;

/// Most calls that are remembered; then all are forgotten, on every rank at the same call.
const MOST_SEEN: usize = 4096;

/// One communicator of a runtime.
pub(crate) struct Member {
    pub(crate) comm: Comm,
    /// Of calls outside of groups.
    pub(crate) conditions: Conditions,
    conditions_digest: Digest,
    /// The number that the ranks agreed on, and how many of them are in this process.
    identity: u64,
    local_ranks: usize,
    calls: AtomicU64,
    seen: Mutex<HashSet<Digest, BuildHasherDefault<Taken>>>,
    /// Diverged by an error that left this rank behind its peers.
    out_of_step: OutOfStep,
}

/// A digest is as good as any hash of it.
#[derive(Default)]
struct Taken(u64);

impl std::hash::Hasher for Taken {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 ^= word;
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Member {
    /// Asks the communicator what the library will ask it. On backends whose library takes one
    /// communicator at a time, its ranks also meet once, to count those in this process.
    pub(crate) fn new(comm: &Comm, settings: &Settings, meet: bool) -> Result<Self> {
        let conditions = Conditions::new(comm.size(), Fabric::of(comm)?).settings(*settings);
        let mut hasher = Hasher::new();
        hasher.words(&condition_words(&conditions));
        let (identity, local_ranks) =
            if meet && comm.size() > 1 { meet_ranks(comm)? } else { (random(), 1) };
        Ok(Self {
            comm: comm.clone(),
            conditions,
            conditions_digest: hasher.finish(),
            identity,
            local_ranks,
            calls: AtomicU64::new(0),
            seen: Mutex::default(),
            out_of_step: OutOfStep::new(),
        })
    }

    /// The communicator's address: it may be the member of several runtimes.
    pub(crate) fn address(&self) -> usize {
        self.comm.as_raw().addr()
    }

    /// The digest of one call under these conditions.
    pub(crate) fn digest(&self, source: &Layout, destination: &Layout) -> Digest {
        let mut hasher = self.hasher();
        hasher.words(&layout_words(source));
        hasher.words(&layout_words(destination));
        hasher.finish()
    }

    /// Starts the digest of a list of calls.
    pub(crate) fn hasher(&self) -> Hasher {
        let mut hasher = Hasher::new();
        hasher.words(&self.conditions_digest.0);
        hasher
    }

    fn seen(&self) -> MutexGuard<'_, HashSet<Digest, BuildHasherDefault<Taken>>> {
        // Nothing panics while it is held.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this was checked and agreed on before.
    pub(crate) fn knows(&self, digest: Digest) -> bool {
        self.seen().contains(&digest)
    }

    pub(crate) fn learn(&self, digest: Digest) {
        let mut seen = self.seen();
        if seen.len() >= MOST_SEEN {
            seen.clear();
        }
        seen.insert(digest);
    }

    /// A ticket for the next call.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket {
            comm: self.identity,
            call: self.calls.fetch_add(1, Ordering::Relaxed),
            ranks: self.local_ranks,
        }
    }

    /// Refuses calls once this rank is out of step.
    pub(crate) fn in_step(&self) -> Result<()> {
        self.out_of_step.check()
    }

    /// This rank leaves its peers for a reason that has nothing to do with them, whatever kind of
    /// error it is: later calls are refused, and the peers are told where the backend can.
    pub(crate) fn diverge_and_tell(&self, error: &Error) {
        self.out_of_step.diverge_and_tell(&self.comm, error);
    }

    /// This rank will not come to the call that its peers are in, or coming to: later ones are
    /// refused, and the peers are told where the backend can, unless the error came from them.
    pub(crate) fn diverge_after(&self, error: &Error) {
        self.out_of_step.diverge_after(&self.comm, error);
    }
}

/// Different in every process and every time.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The number of this process; other processes have others.
fn process() -> u64 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    *PROCESS.get_or_init(random)
}

/// Rank 0's number for the communicator, and how many ranks live in this process.
fn meet_ranks(comm: &Comm) -> Result<(u64, usize)> {
    let own = [process(), random()];
    let all = comm.all_gather_words(&own)?;
    let identity = all.of(0).last().copied().unwrap_or(own[1]);
    let local = all.iter().filter(|words| words.first() == own.first()).count();
    Ok((identity, local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_spread_in_the_set() {
        let build = BuildHasherDefault::<Taken>::default();
        let hash = |a, b| build.hash_one(Digest([a, b]));
        assert_ne!(hash(1, 2), hash(1, 3));
        assert_ne!(hash(1, 2), hash(2, 2));
        assert_ne!(process(), random());
    }
}
