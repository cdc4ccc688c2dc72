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

    /// Enqueues work that uses `uses` on `stream`, each after its earlier uses elsewhere.
    ///
    /// # Errors
    /// What the hooks report, then without the call; the call's own error; then what the hooks report
    /// after it.
    pub fn around<T>(
        stream: Stream<'_>,
        uses: &[Self],
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let begun = uses.iter().try_fold(0, |begun, entry| match entry.usage {
            // Those before it were told of a use that does not come: ended below.
            Some(usage) => {
                usage.before(stream, entry.access).map(|()| begun + 1).map_err(|e| (begun, e))
            }
            None => Ok(begun + 1),
        });
        let (begun, called) = match begun {
            Ok(begun) => (begun, call()),
            Err((begun, error)) => (begun, Err(error)),
        };
        let mut ended = Ok(());
        for entry in uses.iter().take(begun) {
            if let Some(usage) = entry.usage {
                ended = ended.and(usage.after(stream, entry.access));
            }
        }
        called.and_then(|value| ended.map(|()| value))
    }
}
