//! Rules of a group (M2N 1.2, 2.6).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{Backend, rules};

use crate::shape::Shape;

/// Most entries that the library fuses, and most that a group takes.
pub(crate) const MOST_ENTRIES: usize = 4096;

/// What the rules of an entry about to be recorded look at.
pub(crate) struct EntryFacts {
    /// Entries recorded before it.
    pub(crate) before: usize,
}

rules! {
    /// Checked for each entry when it is recorded.
    ENTRY over plain EntryFacts {
        "group.entries" on "group": "a group has a bounded number of entries" ("M2N 1.2", Uniform)
            |f| f.before >= MOST_ENTRIES
                => (format!("at most {MOST_ENTRIES}; close it and open another"), f.before + 1);
    }
}

/// What the rules of an entry on another runtime than the group's look at.
pub(crate) struct EntryRuntimeFacts {
    /// The backend of the group's runtime.
    pub(crate) group: Backend,
    /// That of the entry's.
    pub(crate) entry: Backend,
}

rules! {
    /// Checked before an entry on another runtime is recorded. The group goes on without it.
    ENTRY_RUNTIME over plain EntryRuntimeFacts {
        "group.one-backend" on "runtime":
            "an entry's runtime is of the group's backend: it records for the library of one backend"
            ("M2N 4.3", Local)
            |f| f.group != f.entry
                => (format!("a runtime of backend {}", f.group.name()),
                    format!("one of backend {}", f.entry.name()));
    }
}

/// What the rules of an entry about to be fused look at.
pub(crate) struct FusedFacts<'a> {
    pub(crate) local_shape: &'a Shape,
    /// The first of the entries that it is fused with: its number and its shape.
    pub(crate) first: (usize, &'a Shape),
}

rules! {
    /// Checked for each entry that the library fuses, in the order of recording.
    FUSED over FusedFacts {
        "group.empty-entries" on "local_shape":
            "entries of one topology are all empty or none is, since they are fused"
            ("M2N 2.6 #10", Uniform)
            |f| f.local_shape.is_empty() != f.first.1.is_empty()
                => ("empty tensors outside of the group",
                    format!("an empty and a filled one, the other is entry {}", f.first.0));
    }
}

/// What the rules of memory look at: bytes that two entries use in a way that excludes others.
pub(crate) struct SharedMemoryFacts {
    pub(crate) shared: Option<SharedMemory>,
}

/// Bytes that two entries use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedMemory {
    /// The earlier entry.
    pub(crate) entry: usize,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl SharedMemoryFacts {
    fn described(&self) -> String {
        self.shared.map_or_else(String::new, |shared| {
            format!("{} byte(s) at {:#x} of entry {}", shared.bytes, shared.address, shared.entry)
        })
    }
}

rules! {
    /// Checked for the memory of all entries. Addresses are each rank's own.
    MEMORY over plain SharedMemoryFacts {
        "group.alias" on "group": "entries share no memory (in a fused group not even sources)"
            ("M2N 2.6 #9", Local)
            |f| f.shared.is_some() => ("memory of its own", f.described());
    }
}
