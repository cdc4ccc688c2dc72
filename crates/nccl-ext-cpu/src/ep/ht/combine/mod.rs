//! High-throughput combine: checks, the meeting of the ranks, and their work.

mod check;
mod run;
mod sum;

pub(crate) use run::combine;
