//! Groups: reshards that are recorded and then issued together.

mod abort;
mod compare;
mod entry;
mod fused;
mod issue;
mod order;
mod record;
mod shared_memory;

use std::fmt;
use std::marker::PhantomData;

use nccl_ext_core::rules::check;
use nccl_ext_core::{Comm, Error, Result, Stream};

use crate::dist_tensor::{DistTensor, DistTensorMut};
use crate::library::Library;
use crate::recording::{refuse_in_group, set_recording};
use crate::reshard_call::ReshardCall;
use crate::rules::group::{self as rules, EntryRuntimeFacts};
use crate::runtime::Runtime;
use crate::window::Window;
use entry::Entry;

/// Records reshards that the library then issues together; [`Runtime::group`] passes it to a
/// function.
///
/// It stays on its thread, since the library's group is the thread's. This is a list of calls, not
/// a set of ranks: the ranks of `nccl_ep::Group` correspond to the [`Comm`] of a call here.
pub struct Group<'env> {
    runtime: &'env Runtime,
    entries: Vec<Entry<'env>>,
    failed: Option<EntryFailure>,
    open: bool,
    thread: PhantomData<*const ()>,
}

/// The first error of an entry.
#[derive(Debug, Clone)]
struct EntryFailure {
    error: Error,
    /// The address of the communicator whose ranks all get the error, so that they stay in step.
    in_step: Option<usize>,
}

impl Runtime {
    /// Records the reshards that `record` makes through the [`Group`] and issues them together
    /// when it returns. Every rank of a communicator records the same ones on it, in the same
    /// order; entries on different communicators are issued in the order of their first ones.
    /// Ranks that have several communicators in common record the first entries on them in the
    /// same order: they meet on one communicator after the other, and in another order they wait
    /// for each other until the time-out.
    ///
    /// Entries of one communicator and stream, and of one topology, become one submission: they
    /// run in no particular order and share no memory. The tiles are borrowed until this returns.
    ///
    /// # Errors
    /// What `record` returns. Else [`Error::Entry`] for the first entry that is wrong: nothing of
    /// the group is issued, and every rank gets it, or, where an entry is wrong on one rank alone,
    /// [`Error::PeerFailed`] as far as ranks compare
    /// ([`Agreement`](crate::Agreement)). [`Error::DigestMismatch`]
    /// when ranks recorded different things, [`Error::Busy`] inside another group, and what the
    /// library reports; the runtimes are [`Error::Poisoned`] afterwards.
    ///
    /// A panic, or an error of `record` itself, aborts the group. Nobody knows then what was still
    /// to be recorded, so the peers of all communicators that this runtime was used with are told,
    /// where the backend can, and these communicators are not used again; peers of one that was
    /// never used with it wait for their time-out. An error that all ranks of one entry's
    /// communicator get leaves that one in step; the other communicators with entries before it
    /// are left in the same way, as some of their ranks may not have the error.
    #[doc(alias = "ncclM2nGroupStart")]
    #[doc(alias = "ncclM2nGroupEnd")]
    #[doc(alias = "ncclM2nGroupAbort")]
    pub fn group<'env, T>(
        &'env self,
        record: impl FnOnce(&mut Group<'env>) -> Result<T>,
    ) -> Result<T> {
        let mut group = Group::start(self)?;
        let value = record(&mut group).inspect_err(|error| group.abort_after(error))?;
        group.finish()?;
        Ok(value)
    }
}

impl<'env> Group<'env> {
    fn start(runtime: &'env Runtime) -> Result<Self> {
        refuse_in_group("another group")?;
        runtime.check_not_poisoned()?;
        let Library { api, .. } = runtime.library;
        // SAFETY: no arguments.
        unsafe { runtime.library.call("ncclM2nGroupStart", api.ncclM2nGroupStart, ())? };
        set_recording(true);
        let (entries, failed) = (Vec::new(), None);
        Ok(Self { runtime, entries, failed, open: true, thread: PhantomData })
    }

    /// Records a reshard on the group's runtime. The tiles are borrowed until the group has been
    /// issued.
    ///
    /// # Errors
    /// [`Error::Entry`] when a rule of the call is broken that every rank checks; the group then
    /// fails with it. Errors that this rank alone has, such as missing memory, come from the
    /// group: the other ranks record all entries too.
    #[doc(alias = "ncclReshard")]
    pub fn reshard(
        &mut self,
        comm: &Comm,
        source: DistTensor<'env>,
        destination: DistTensorMut<'env>,
        stream: Stream<'env>,
    ) -> Result<()> {
        let (source, destination) = (source.side(), destination.side());
        self.add(self.runtime, &ReshardCall { comm, source, destination, window: None, stream })
    }

    /// As [`reshard`](Self::reshard), with a window that the library may use one day.
    ///
    /// # Errors
    /// As [`reshard`](Self::reshard).
    #[doc(alias = "ncclReshardWithWindow")]
    pub fn reshard_with_window(
        &mut self,
        comm: &Comm,
        window: Window<'env>,
        source: DistTensor<'env>,
        destination: DistTensorMut<'env>,
        stream: Stream<'env>,
    ) -> Result<()> {
        let (source, destination, window) = (source.side(), destination.side(), Some(window));
        self.add(self.runtime, &ReshardCall { comm, source, destination, window, stream })
    }

    /// As [`reshard`](Self::reshard), on another runtime of the same backend.
    ///
    /// # Errors
    /// As [`reshard`](Self::reshard), and [`Error::Invalid`] for one of another backend; the group
    /// goes on without it.
    #[doc(alias = "ncclReshard")]
    pub fn reshard_on(
        &mut self,
        runtime: &'env Runtime,
        comm: &Comm,
        source: DistTensor<'env>,
        destination: DistTensorMut<'env>,
        stream: Stream<'env>,
    ) -> Result<()> {
        let facts = EntryRuntimeFacts { group: self.runtime.backend(), entry: runtime.backend() };
        check(rules::ENTRY_RUNTIME, |broken| broken(&facts))?;
        let (source, destination) = (source.side(), destination.side());
        self.add(runtime, &ReshardCall { comm, source, destination, window: None, stream })
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(EntryFailure { error, .. }) = self.failed.clone() {
            // The recording function kept it to itself.
            self.abort_after(&error);
            return Err(error);
        }
        let failed = self.own_failure();
        self.compare(failed.as_ref()).inspect_err(|_| self.abort())?;
        // After the exchange, as it depends on the streams too.
        if let Err((index, error)) = self.check_fused() {
            self.abort();
            let in_step = self.entries.get(index).map(|entry| entry.comm_state.address());
            self.diverge_except(in_step, &error);
            return Err(error);
        }
        if let Some(error) = failed {
            // Without an exchange the peers do not know.
            self.abort();
            self.diverge_except(None, &error);
            return Err(error);
        }
        self.issue()
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if self.open {
            // The recording function panicked.
            self.abort();
            let reason = "a panic while its group was recorded".into();
            self.diverge_everywhere(&Error::RankGone { reason });
        }
    }
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("entries", &self.entries.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
