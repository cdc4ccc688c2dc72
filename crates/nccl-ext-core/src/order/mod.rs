//! Order between uses of the same thing on several streams.
//!
//! A call returns before its work is done, and work on two streams runs in any order. What is used on
//! streams (memory, a group, a communicator of a runtime) therefore remembers where its last uses
//! were, and a use on another stream waits for them on the device; host access and drops wait on the
//! host. On one stream of these crates' own that is a comparison.

mod event_pool;
mod last_use;
mod one_use;

pub use self::last_use::LastUse;
