//! The backend whose calls return before their work is done.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod order;
mod races;
mod streams;
