//! Groups: reshards that are recorded and then issued together.

mod checks;
mod issue;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use nccl_ext_core::{Comm, Error, Result, Scope, Stream};

use crate::dist_tensor::{Descriptor, DistTensor, DistTensorMut, Side};
use crate::layout::Layout;
use crate::member::Member;
use crate::native::Library;
use crate::reshard::{check_layouts, check_memory};
use crate::rules::{self, group};
use crate::runtime::Runtime;
use crate::window::Window;

thread_local! {
    /// Whether this thread records a group: the library's group is the thread's.
    static RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// The library would record a call made here without anybody keeping its memory, abort all groups
/// at once, or refuse.
pub(crate) fn refuse_inside(what: &'static str) -> Result<()> {
    if !RECORDING.get() {
        return Ok(());
    }
    Err(Error::Busy {
        what,
        reason: "this thread records a group; use the group's own methods, or end it first".into(),
    })
}

/// Records reshards; given to the function that [`Runtime::group`] calls.
///
/// It stays on its thread, since the library's group is the thread's.
pub struct Group<'env> {
    runtime: &'env Runtime,
    entries: Vec<Entry<'env>>,
    /// The first error of an entry, and the communicator whose ranks all get it, by address.
    failed: Option<(Error, Option<usize>)>,
    open: bool,
    thread: PhantomData<*const ()>,
}

/// One recorded reshard.
struct Entry<'env> {
    runtime: &'env Runtime,
    member: Arc<Member>,
    layouts: (Layout, Layout),
    /// The memory that it uses on this rank: source and destination.
    tiles: [Option<Range<usize>>; 2],
    stream: usize,
    /// The error that this rank alone has with it.
    failed: Option<Error>,
}

impl Entry<'_> {
    /// What the library fuses has this in common: handle, communicator and stream, where the
    /// default stream has two names (M2N 4.3).
    fn bucket(&self) -> (usize, usize, usize) {
        let stream = if self.stream == LEGACY_STREAM { 0 } else { self.stream };
        (self.runtime.handle.addr(), self.member.comm.as_raw().addr(), stream)
    }
}

/// `cudaStreamLegacy`, which NULL means too.
const LEGACY_STREAM: usize = 1;

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
        let value = record(&mut group).inspect_err(|error| group.abandon(error))?;
        group.finish()?;
        Ok(value)
    }
}

impl<'env> Group<'env> {
    fn start(runtime: &'env Runtime) -> Result<Self> {
        refuse_inside("another group")?;
        runtime.usable()?;
        let Library { api, .. } = runtime.library;
        // SAFETY: no arguments.
        unsafe { runtime.library.call("ncclM2nGroupStart", api.ncclM2nGroupStart, ())? };
        RECORDING.set(true);
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
        self.add(self.runtime, comm, source.side(), destination.side(), None, stream)
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
        self.add(self.runtime, comm, source.side(), destination.side(), Some(window), stream)
    }

    /// As [`reshard`](Self::reshard), on another runtime of the same backend.
    ///
    /// # Errors
    /// As [`reshard`](Self::reshard), and [`Error::Busy`] for one of another backend.
    #[doc(alias = "ncclReshard")]
    pub fn reshard_on(
        &mut self,
        runtime: &'env Runtime,
        comm: &Comm,
        source: DistTensor<'env>,
        destination: DistTensorMut<'env>,
        stream: Stream<'env>,
    ) -> Result<()> {
        if runtime.backend() != self.runtime.backend() {
            return Err(Error::Busy {
                what: "the group",
                reason: "it records for the library of one backend".into(),
            });
        }
        self.add(runtime, comm, source.side(), destination.side(), None, stream)
    }

    fn add(
        &mut self,
        runtime: &'env Runtime,
        comm: &Comm,
        source: &Side,
        destination: &Side,
        window: Option<Window<'env>>,
        stream: Stream<'env>,
    ) -> Result<()> {
        if let Some((error, _)) = &self.failed {
            return Err(error.clone());
        }
        let index = self.entries.len();
        let entry = |error: Error| Error::Entry { index, error: Arc::new(error) };
        let recorded = self.record(runtime, comm, source, destination, window, stream);
        recorded.map_err(entry).inspect_err(|error| {
            let address = comm.as_raw().addr();
            // The ranks of other communicators may have recorded fewer entries.
            let full = index >= group::MOST_ENTRIES;
            let alone = self.entries.iter().all(|entry| entry.member.address() == address);
            let uniform = error.scope() == Scope::Uniform && (alone || !full);
            self.failed = Some((error.clone(), uniform.then_some(address)));
        })
    }

    fn record(
        &mut self,
        runtime: &'env Runtime,
        comm: &Comm,
        source: &Side,
        destination: &Side,
        window: Option<Window<'env>>,
        stream: Stream<'env>,
    ) -> Result<()> {
        runtime.usable()?;
        let facts = group::Facts::recording(self.entries.len());
        rules::check(group::RULES, |broken| broken(&facts))?;
        let member = runtime.member(comm)?;
        member.in_step()?;
        check_layouts(&member, &source.layout, &destination.layout)?;
        let failed = check_memory(&member, source, destination, stream).err();
        let rank = comm.rank();
        let tiles = [source, destination].map(|side| {
            let start = side.tile_of(rank)?.ptr.addr();
            Some(start..start + side.layout.local_bytes()).filter(|range| !range.is_empty())
        });
        if failed.is_none() {
            record_native(runtime, comm, source, destination, window, stream)
                .inspect_err(|error| runtime.poison(error))?;
        }
        self.entries.push(Entry {
            runtime,
            member,
            layouts: (source.layout, destination.layout),
            tiles,
            stream: stream.as_raw().addr(),
            failed,
        });
        Ok(())
    }

    /// Gives the recorded entries up before they are issued.
    fn abort(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        RECORDING.set(false);
        let library = self.runtime.library;
        // SAFETY: no arguments. It ends this thread's group, which nobody else has a part in.
        let aborted =
            unsafe { library.call("ncclM2nGroupAbort", library.api.ncclM2nGroupAbort, ()) };
        if let Err(error) = aborted {
            tracing::error!(%error, "an M2N group was not aborted");
        }
    }

    /// The recording function failed. Where it passed on the error of an entry, all ranks of that
    /// entry's communicator have it too. Otherwise nobody knows what it would have recorded.
    fn abandon(&mut self, error: &Error) {
        self.abort();
        match &self.failed {
            Some((failed, Some(decided))) if same(failed, error) => {
                self.leave_others(Some(*decided), error);
            }
            _ => self.leave_all(error),
        }
    }

    /// Tells everybody who may wait for this rank.
    fn leave_all(&self, error: &Error) {
        self.leave_others(None, error);
        self.runtime.members().iter().for_each(|member| member.diverge_and_tell(error));
    }

    /// Leaves the communicators of the group, except one whose ranks all have the error.
    fn leave_others(&self, decided: Option<usize>, error: &Error) {
        let others = self.members().into_iter();
        let others = others.filter(|member| Some(member.address()) != decided);
        others.for_each(|member| member.diverge_and_tell(error));
    }

    /// The communicators, in the order of their first entries.
    fn members(&self) -> Vec<&Member> {
        let mut members: Vec<&Member> = Vec::new();
        for entry in &self.entries {
            if !members.iter().any(|member| std::ptr::eq(*member, &*entry.member)) {
                members.push(&entry.member);
            }
        }
        members
    }

    fn finish(&mut self) -> Result<()> {
        if let Some((error, _)) = self.failed.clone() {
            // The recording function kept it to itself.
            self.abandon(&error);
            return Err(error);
        }
        let failed = self.own_failure();
        self.compare(failed.as_ref()).inspect_err(|_| self.abort())?;
        // After the exchange, as it depends on the streams too.
        if let Err((index, error)) = self.check_fused() {
            self.abort();
            let decided = self.entries.get(index).map(|entry| entry.member.address());
            self.leave_others(decided, &error);
            return Err(error);
        }
        if let Some(error) = failed {
            // Without an exchange the peers do not know.
            self.abort();
            self.leave_others(None, &error);
            return Err(error);
        }
        self.issue()
    }
}

/// # Errors
/// What the library reports while it records.
fn record_native(
    runtime: &Runtime,
    comm: &Comm,
    source: &Side,
    destination: &Side,
    window: Option<Window<'_>>,
    stream: Stream<'_>,
) -> Result<()> {
    let mut from = Descriptor::new(source, comm.rank());
    let mut to = Descriptor::new(destination, comm.rank());
    let (library, raw, stream) = (runtime.library, comm.as_raw(), stream.as_raw());
    // SAFETY: recording copies the descriptors and touches nothing else (M2N 1.6). What it keeps,
    // handle, communicator, tiles and stream, is borrowed or held until the group has ended.
    unsafe {
        let (from, to) = (from.bind(), to.bind());
        match window {
            None => {
                let arguments = (runtime.handle, raw, from, to, stream);
                library.call("ncclReshard", library.api.ncclReshard, arguments)
            }
            Some(window) => {
                let arguments = (runtime.handle, raw, window.as_raw(), from, to, stream);
                let function = library.api.ncclReshardWithWindow;
                library.call("ncclReshardWithWindow", function, arguments)
            }
        }
    }
}

/// Whether the recording function passed on the group's own error.
fn same(a: &Error, b: &Error) -> bool {
    match (a, b) {
        (Error::Entry { index: i, error: a }, Error::Entry { index: j, error: b }) => {
            i == j && Arc::ptr_eq(a, b)
        }
        _ => false,
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if self.open {
            // The recording function panicked.
            self.abort();
            let reason = "a panic while its group was recorded".into();
            self.leave_all(&Error::RankGone { reason });
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
