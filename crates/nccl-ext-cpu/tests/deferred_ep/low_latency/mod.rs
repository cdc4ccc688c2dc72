//! Low latency.

mod races;
mod rank;
mod rounds;
mod waits;
