//! Where ranks meet.

mod exchange;
mod ready;

pub(super) use exchange::exchange;
pub(super) use ready::ready;
