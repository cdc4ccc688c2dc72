//! Where ranks meet.

mod caller;
mod exchange;
mod issue;
mod ready;

pub(super) use caller::Caller;
pub(super) use issue::{Issue, issue};
pub(super) use ready::ready;
