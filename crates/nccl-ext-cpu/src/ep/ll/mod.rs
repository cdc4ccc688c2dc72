//! Low latency: an update remembers the caller's ids, dispatch pulls the rows of the peers' tokens,
//! combine sums them. Each may be split into a staged send and its completion.
//!
//! A call checks its arguments and leaves the rest to its stream: `Called` is what it knows when it
//! returns, `Work` what its work gives.
//!
//! Bottom to top: `entries`, `destination` -> `state` -> `update`, `dispatch`, `combine` ->
//! `complete`.

mod combine;
mod complete;
mod destination;
mod dispatch;
mod entries;
mod limits;
mod state;
mod update;

pub(super) use combine::combine;
pub(super) use complete::complete;
pub(super) use dispatch::dispatch;
pub(super) use state::LowLatency;
pub(super) use update::update;
