//! Low-latency combine: checks, the meeting of the ranks, and their work.

mod check;
mod masked;
mod run;
mod sum;

pub(crate) use run::{combine, complete};
