//! Rules of copying prepared handles (EP 3.3).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

use crate::enums::Algorithm;

/// The handle that is to be copied.
pub(crate) struct SnapshotFacts {
    pub(crate) algorithm: Algorithm,
    /// Whether an update has prepared it.
    pub(crate) prepared: bool,
    /// Whether its memory is the caller's.
    pub(crate) own_memory: bool,
}

rules! {
    /// Checked by [`Handle::snapshot`](crate::Handle::snapshot).
    RULES over plain SnapshotFacts {
        "snapshot.high-throughput" on "handle":
            "only high throughput keeps its routing in handle memory" ("EP 3.3", Local)
            |f| f.algorithm == Algorithm::LowLatency => ("a high-throughput handle", "a low-latency handle");
        "snapshot.prepared" on "handle": "an update prepares what a snapshot copies"
            ("EP 3.3", Local)
            |f| !f.prepared => ("an update before it", "none");
        "snapshot.memory" on "handle_mem": "memory of the library's cannot be copied"
            ("EP 3.3", Local)
            |f| !f.own_memory
                => ("a handle made with memory of the caller's", "memory of the library's");
    }
}
