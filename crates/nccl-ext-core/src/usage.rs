//! The hooks of memory that takes part in order between streams.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::stream::Stream;

/// How a use touches what it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It only reads: other reads may run at the same time, on other streams, too.
    Read,
    /// It writes: nothing else may run at the same time.
    Write,
}

/// The stream of ours that something was used on last, where a use there adds nothing: what most uses
/// are compared with, and nothing else.
///
/// The number of a remembered stream, times 2; plus 1 where it is the only one and wrote last. 0 where
/// each use must be told.
#[derive(Debug, Default)]
pub struct LatestUse(AtomicU64);

impl LatestUse {
    /// Each use must be told.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A read on the stream of this number adds nothing from now on, nor does a write if it is the only
    /// one remembered and wrote last. 0 for none.
    pub fn set(&self, number: u64, alone: bool) {
        self.0.store(number << 1 | u64::from(alone && number != 0), Ordering::Release);
    }

    /// Whether a use on the stream of this number, which is not 0, adds nothing.
    ///
    /// What must be seen here comes before by a borrow or a lock; of reads at the same time it is enough
    /// to see any.
    #[inline]
    #[must_use]
    pub fn is_settled(&self, number: u64, access: Access) -> bool {
        let latest = self.0.load(Ordering::Relaxed);
        match access {
            Access::Read => latest >> 1 == number,
            Access::Write => latest == number << 1 | 1,
        }
    }
}

/// What is told of each use on a stream, and can so order it after the earlier ones.
///
/// [`LastUse`](crate::LastUse) is the implementation of these crates' own memory. Memory of another
/// library joins in by an implementation that records and waits with that library's means.
pub trait Usage: Sync {
    /// What a use is compared with first; `None` where each use must be told.
    fn latest(&self) -> Option<&LatestUse> {
        None
    }

    /// Right before work that uses it is enqueued on `stream`: makes the stream wait for earlier uses
    /// on other streams, as far as `access` needs it. May not wait on the host for them.
    ///
    /// # Errors
    /// What the driver reports; the work must then not be enqueued.
    fn before(&self, stream: Stream<'_>, access: Access) -> Result<()>;

    /// Right after the work was enqueued, once for each [`before`](Self::before), also when the call
    /// failed: it may have enqueued a part.
    ///
    /// # Errors
    /// What the driver reports. The work is enqueued all the same, and nobody knows when it ends.
    fn after(&self, stream: Stream<'_>, access: Access) -> Result<()>;
}

/// One use of a call: what is used, if it takes part in order, and how.
#[derive(Clone, Copy)]
pub struct Use<'a> {
    latest: Option<&'a LatestUse>,
    usage: Option<&'a dyn Usage>,
    access: Access,
}

impl<'a> Use<'a> {
    /// No use at all: for tensors that a call does without.
    pub const NONE: Self = Self { latest: None, usage: None, access: Access::Read };

    /// A use that reads.
    #[inline]
    #[must_use]
    pub fn read(usage: Option<&'a dyn Usage>) -> Self {
        Self { latest: usage.and_then(Usage::latest), usage, access: Access::Read }
    }

    /// A use that writes.
    #[inline]
    #[must_use]
    pub fn write(usage: Option<&'a dyn Usage>) -> Self {
        Self { access: Access::Write, ..Self::read(usage) }
    }

    /// The same thing, used by reading it.
    #[must_use]
    pub const fn reading(self) -> Self {
        Self { latest: self.latest, usage: self.usage, access: Access::Read }
    }

    /// Right before work that has this use is enqueued; [`end`](Self::end) follows right after it,
    /// whatever came of it.
    ///
    /// # Errors
    /// As [`Usage::before`].
    pub fn begin(&self, stream: Stream<'_>) -> Result<()> {
        self.usage.map_or(Ok(()), |usage| usage.before(stream, self.access))
    }

    /// Right after it was enqueued.
    ///
    /// # Errors
    /// As [`Usage::after`].
    pub fn end(&self, stream: Stream<'_>) -> Result<()> {
        self.usage.map_or(Ok(()), |usage| usage.after(stream, self.access))
    }

    /// Whether a use on the stream of ours of this number adds nothing.
    #[inline]
    fn is_settled(&self, number: u64) -> bool {
        match self.latest {
            Some(latest) => latest.is_settled(number, self.access),
            None => self.usage.is_none(),
        }
    }

    /// Enqueues work that has these uses on `stream`, each after the earlier ones elsewhere.
    ///
    /// # Errors
    /// What the hooks report, then without the call; the call's own error; then what the hooks report
    /// after it.
    #[inline]
    pub fn around<T>(
        stream: Stream<'_>,
        uses: &[Self],
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let number = stream.number();
        if number != 0 && uses.iter().all(|used| used.is_settled(number)) {
            return call();
        }
        let (begun, ready) = Self::begin_all(stream, uses);
        let called = ready.and_then(|()| call());
        let ended = Self::end_all(stream, begun);
        called.and_then(|value| ended.map(|()| value))
    }

    /// The uses that have begun, and what became of the next one.
    #[cold]
    fn begin_all<'u>(stream: Stream<'_>, uses: &'u [Self]) -> (&'u [Self], Result<()>) {
        for (at, used) in uses.iter().enumerate() {
            if let Err(error) = used.begin(stream) {
                return (uses.get(..at).unwrap_or_default(), Err(error));
            }
        }
        (uses, Ok(()))
    }

    /// The first error; all are ended.
    #[cold]
    fn end_all(stream: Stream<'_>, uses: &[Self]) -> Result<()> {
        let mut ended = Ok(());
        for used in uses {
            ended = ended.and(used.end(stream));
        }
        ended
    }
}
