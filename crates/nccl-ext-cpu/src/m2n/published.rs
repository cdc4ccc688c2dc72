//! What a rank shows to the others before a transfer.

use super::descriptor::Transfer;
use super::environment::LoadBalance;
use super::fault::{BrokenRule, Fault};
use crate::world::Descriptor;

/// A transfer, and its index in the group that it was recorded in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) index: usize,
    pub(super) transfer: Transfer,
    pub(super) balance: LoadBalance,
}

/// What one rank shows to the others: transfers that run together.
pub(super) struct Published {
    pub(super) entries: Vec<Entry>,
    /// What keeps this rank, and this rank alone, from taking part. It shows up all the same, so
    /// that nobody waits for it.
    pub(super) refused: Option<EntryFailure<BrokenRule>>,
}

// SAFETY: peers read the entries. They read the source tile and nobody writes it; only its own
// rank writes the destination tile. Both are valid until the call returns, by its C contract.
unsafe impl Descriptor for Published {
    const NAME: &'static str = "ncclReshard";
}

/// The entry that ends a call, and why.
#[derive(Debug, Clone)]
pub(super) struct EntryFailure<T> {
    pub(super) index: usize,
    pub(super) why: T,
}

impl<T> EntryFailure<T> {
    pub(super) fn at(index: usize) -> impl FnOnce(T) -> Self {
        move |why| Self { index, why }
    }
}

impl From<EntryFailure<BrokenRule>> for EntryFailure<Fault> {
    fn from(EntryFailure { index, why }: EntryFailure<BrokenRule>) -> Self {
        Self { index, why: why.into() }
    }
}
