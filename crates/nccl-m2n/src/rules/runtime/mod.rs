//! Rules of what a runtime is used with (M2N 4.1).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{Backend, rules};

/// What the rules of a communicator at its first use by a runtime look at.
pub(crate) struct CommunicatorFacts {
    pub(crate) runtime: Backend,
    pub(crate) communicator: Backend,
}

rules! {
    /// Checked when a runtime is first used with a communicator.
    COMMUNICATOR over plain CommunicatorFacts {
        "runtime.communicator-backend" on "communicator":
            "a communicator belongs to the runtime's backend" ("M2N 4.1", Uniform)
            |f| f.runtime != f.communicator
                => (format!("one of backend {}", f.runtime.name()),
                    format!("one of backend {}", f.communicator.name()));
    }
}
