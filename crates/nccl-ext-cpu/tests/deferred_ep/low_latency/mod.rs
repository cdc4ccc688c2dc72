//! Low latency.

mod races;
mod rank;
mod rounds;
mod shared_memory;
mod waits;
