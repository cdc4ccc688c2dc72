//! A number for a communicator that all its ranks know it by, and how many of them live in this
//! process.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use nccl_ext_core::{Comm, Result};

/// What a communicator's ranks have found out about each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommIdentity {
    /// Different for every communicator, the same on all its ranks.
    pub(crate) id: u64,
    /// Its ranks in this process.
    pub(crate) local_ranks: usize,
}

impl CommIdentity {
    /// Of a communicator whose ranks need not find each other.
    pub(crate) fn alone() -> Self {
        Self { id: random(), local_ranks: 1 }
    }

    /// Rank 0's number, and how many ranks have this process's. Collective.
    pub(crate) fn exchange(comm: &Comm) -> Result<Self> {
        let own = [process(), random()];
        let all = comm.all_gather_words(&own)?;
        let id = all.of(0).last().copied().unwrap_or(own[1]);
        let local_ranks = all.iter().filter(|words| words.first() == own.first()).count();
        Ok(Self { id, local_ranks })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_communicators_differ() {
        assert_eq!(process(), process());
        assert_ne!(process(), random());
        assert_ne!(CommIdentity::alone().id, CommIdentity::alone().id);
    }
}
