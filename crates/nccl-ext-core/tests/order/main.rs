//! Order between streams, over a driver that writes down its calls.

#![allow(clippy::unwrap_used, reason = "a test")]

mod abort;
mod driver;
mod host;
mod last_use;
mod waits;
