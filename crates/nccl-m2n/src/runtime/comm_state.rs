//! What a runtime knows of a communicator that it was used with.

use std::sync::atomic::{AtomicU64, Ordering};

use nccl_ext_core::{Comm, Error, LastUse, OutOfStep, Result};

use super::agreed_calls::AgreedCalls;
use super::call_gate::CallId;
use super::comm_identity::CommIdentity;
use crate::fabric::Fabric;
use crate::layout::Layout;
use crate::plan::{Conditions, Digest, Hasher, condition_words, layout_words};
use crate::settings::Settings;

/// One communicator of a runtime.
pub(crate) struct CommState {
    pub(crate) comm: Comm,
    /// Of calls outside of groups.
    pub(crate) conditions: Conditions,
    pub(crate) agreed: AgreedCalls,
    /// The library's memory for this communicator serves one call after the other. Used under the
    /// communicator's lock.
    pub(crate) last_use: LastUse,
    conditions_digest: Digest,
    identity: CommIdentity,
    calls: AtomicU64,
    /// Diverged by an error that left this rank behind its peers.
    out_of_step: OutOfStep,
}

impl CommState {
    /// Asks the communicator what the library will ask it. On backends whose library takes one
    /// communicator at a time (`one_at_a_time`), its ranks also meet once, to count those in this
    /// process.
    pub(crate) fn new(comm: &Comm, settings: &Settings, one_at_a_time: bool) -> Result<Self> {
        let conditions = Conditions::new(comm.size(), Fabric::of(comm)?).settings(*settings);
        let mut hasher = Hasher::new();
        hasher.words(&condition_words(&conditions));
        let identity = if one_at_a_time && comm.size() > 1 {
            CommIdentity::exchange(comm)?
        } else {
            CommIdentity::alone()
        };
        Ok(Self {
            comm: comm.clone(),
            conditions,
            agreed: AgreedCalls::default(),
            last_use: LastUse::new(comm.device()),
            conditions_digest: hasher.finish(),
            identity,
            calls: AtomicU64::new(0),
            out_of_step: OutOfStep::new(),
        })
    }

    /// The communicator's address: several runtimes may know it.
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

    /// The next call, as all ranks know it.
    pub(crate) fn next_call(&self) -> CallId {
        CallId {
            comm: self.identity.id,
            call: self.calls.fetch_add(1, Ordering::Relaxed),
            ranks: self.identity.local_ranks,
        }
    }

    /// Refuses calls once this rank is out of step, or the communicator aborted.
    pub(crate) fn check_in_step(&self) -> Result<()> {
        self.comm.refuse_if_aborted()?;
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
