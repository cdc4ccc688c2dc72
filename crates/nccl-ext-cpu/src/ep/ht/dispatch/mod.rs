//! High-throughput dispatch: checks, the meeting of the ranks, and their work.

mod check;
mod push;
mod reception;
mod run;

pub(crate) use run::dispatch;
