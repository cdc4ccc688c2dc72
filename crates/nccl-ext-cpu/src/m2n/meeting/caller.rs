//! Whose work it is that fails when the call has returned.

use crate::m2n::fault::Fault;
use crate::m2n::published::EntryFailure;
use crate::refusal::Refusal;

/// The call that work belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Caller {
    /// One reshard, by the C function of this name.
    Single(&'static str),
    /// An entry of a group of `count` that runs by itself.
    Entry { index: usize, count: usize },
    /// Entries of a group of `count` that run together.
    Bucket { count: usize },
}

impl Caller {
    /// The C function.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Single(name) => name,
            Self::Entry { .. } | Self::Bucket { .. } => "ncclM2nGroupEnd",
        }
    }

    /// What the communicator is told.
    pub(super) fn refusal(self, EntryFailure { index, why }: EntryFailure<Fault>) -> Refusal {
        let fault = match self {
            Self::Single(_) => why,
            Self::Entry { index, count } => why.of_entry(index, count),
            Self::Bucket { count } => why.of_entry(index, count),
        };
        fault.into_refusal(self.name())
    }
}
