//! Low-latency dispatch: checks, the meeting of the ranks, and their work.

mod check;
mod masked;
mod pull;
mod run;
mod uses;

pub(crate) use run::{complete, dispatch};
