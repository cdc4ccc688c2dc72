//! Low-latency dispatch: checks, the meeting of the ranks, and their work.

mod check;
mod masked;
mod pull;
mod run;

pub(crate) use run::{complete, dispatch};
