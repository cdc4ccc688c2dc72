//! The tables of the driver's functions.

mod common;
mod contexts;
mod deferred;
mod immediate;
mod pinned;
mod waits;

pub(crate) use common::{SM_COUNT, note_device};
pub(crate) use contexts::current_device;
pub(crate) use deferred::TABLE as DEFERRED_TABLE;
pub(crate) use immediate::TABLE;
