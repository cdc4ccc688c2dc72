//! The calls that the ranks of a communicator have checked and agreed on before.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::plan::Digest;

/// Most calls that are remembered; then all are forgotten, on every rank at the same call.
const MOST_REMEMBERED: usize = 4096;

type Digests = HashSet<Digest, BuildHasherDefault<IdentityHasher>>;

/// Digests of calls and groups.
#[derive(Default)]
pub(crate) struct AgreedCalls(Mutex<Digests>);

impl AgreedCalls {
    fn lock(&self) -> MutexGuard<'_, Digests> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, digest: Digest) -> bool {
        self.lock().contains(&digest)
    }

    pub(crate) fn insert(&self, digest: Digest) {
        let mut digests = self.lock();
        if digests.len() >= MOST_REMEMBERED {
            digests.clear();
        }
        digests.insert(digest);
    }
}

/// A digest is as good as any hash of it.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn digests_spread_in_the_set() {
        let build = BuildHasherDefault::<IdentityHasher>::default();
        let hash = |a, b| build.hash_one(Digest([a, b]));
        assert_ne!(hash(1, 2), hash(1, 3));
        assert_ne!(hash(1, 2), hash(2, 2));
    }
}
