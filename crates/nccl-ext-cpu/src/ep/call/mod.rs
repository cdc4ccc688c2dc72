//! One file per C function, or for a few that belong together: it reads the arguments, finds the
//! group or the handle, and hands on to the algorithm.

mod combine;
mod complete;
mod dispatch;
mod import;
mod mask;
mod update;

pub(super) use combine::combine;
pub(super) use complete::complete;
pub(super) use dispatch::dispatch;
pub(super) use import::{UpdateFacts, import};
pub(super) use mask::{async_error, clean, clear_error, query, update as update_mask};
pub(super) use update::{create, update};
