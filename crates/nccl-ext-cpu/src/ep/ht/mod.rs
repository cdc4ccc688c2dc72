//! High throughput: an update places all rows, dispatch pushes them there, combine sums them.
//!
//! Bottom to top: `routes` -> `placement` -> `learned` -> `image` -> `memory` -> `state`; `update`,
//! `dispatch` and `combine` stand on them and know nothing of each other. Each checks the arguments on
//! the calling thread; the rest is work for the stream.

mod checksum;
mod combine;
mod dispatch;
mod image;
mod learned;
mod memory;
mod placement;
mod routes;
mod state;
mod update;

pub(super) use combine::combine;
pub(super) use dispatch::dispatch;
pub(super) use image::{ImageFacts, bytes as image_bytes};
pub(super) use memory::HandleMemory;
pub(super) use state::HighThroughput;
pub(super) use update::update;
