//! Rules of a group (M2N 2.6).

use std::marker::PhantomData;

use nccl_ext_core::{Scope, rules};

use super::RuleInfo;

/// Most entries that the library fuses, and most that a group takes.
pub(crate) const MOST_ENTRIES: usize = 4096;

/// What the rules of an entry look at.
pub(crate) struct Facts<'a> {
    /// Entries recorded before it.
    before: usize,
    /// Whether it moves nothing.
    empty: bool,
    /// The first of the entries that it is fused with, and whether that one moves nothing.
    first: Option<(usize, bool)>,
    group: PhantomData<&'a ()>,
}

impl Facts<'_> {
    /// Of an entry about to be recorded.
    pub(crate) fn recording(before: usize) -> Self {
        Self { before, empty: false, first: None, group: PhantomData }
    }

    /// Of an entry about to be fused.
    pub(crate) fn fused(empty: bool, first: Option<(usize, bool)>) -> Self {
        Self { before: 0, empty, first, group: PhantomData }
    }

    fn unlike(&self) -> Option<usize> {
        self.first.filter(|(_, empty)| *empty != self.empty).map(|(index, _)| index)
    }
}

rules! {
    /// Checked for each entry in the order of recording.
    RULES over Facts {
        "group.entries" on "group": "a group has a bounded number of entries" ("M2N 1.2", Uniform)
            |f| f.before >= MOST_ENTRIES
                => (format!("at most {MOST_ENTRIES}; close it and open another"), f.before + 1);
        "group.empty-entries" on "local_shape":
            "entries of one topology are all empty or none is, since they are fused"
            ("M2N 2.6 #10", Uniform)
            |f| f.unlike().is_some()
                => ("empty tensors outside of the group",
                    format!("an empty and a filled one, the other is entry {}",
                        f.unlike().unwrap_or_default()));
    }
}

/// Two entries use the same memory. Addresses are a rank's own.
pub(crate) const ALIAS: RuleInfo = RuleInfo::new(
    "group.alias",
    "group",
    "entries share no memory (in a fused group not even sources)",
    "M2N 2.6 #9",
    Scope::Local,
);
