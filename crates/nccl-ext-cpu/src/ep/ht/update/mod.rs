//! The update of a high-throughput handle: what it refuses, what it learns, what it counts.

mod check;
mod counters;
mod run;

pub(crate) use run::update;
