//! The hooks of memory that takes part in order between streams.

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

/// What is told of each use on a stream, and can so order it after the earlier ones.
///
/// [`LastUse`](crate::LastUse) is the implementation of these crates' own memory. Memory of another
/// library joins in by an implementation that records and waits with that library's means.
pub trait Usage: Sync {
    /// Whether a use on `stream` needs neither [`before`](Self::before) nor [`after`](Self::after), for
    /// it would add nothing. They are then left out: this is what most calls cost.
    fn is_settled(&self, _stream: Stream<'_>, _access: Access) -> bool {
        false
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
    usage: Option<&'a dyn Usage>,
    access: Access,
}

impl<'a> Use<'a> {
    /// No use at all: for tensors that a call does without.
    pub const NONE: Self = Self { usage: None, access: Access::Read };

    /// A use that reads.
    #[must_use]
    pub const fn read(usage: Option<&'a dyn Usage>) -> Self {
        Self { usage, access: Access::Read }
    }

    /// A use that writes.
    #[must_use]
    pub const fn write(usage: Option<&'a dyn Usage>) -> Self {
        Self { usage, access: Access::Write }
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

    #[inline]
    fn is_settled(&self, stream: Stream<'_>) -> bool {
        self.usage.is_none_or(|usage| usage.is_settled(stream, self.access))
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
        if uses.iter().all(|used| used.is_settled(stream)) {
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
        uses.iter().fold(Ok(()), |ended, used| ended.and(used.end(stream)))
    }
}
