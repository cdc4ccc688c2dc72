//! The parts of the command line tool `nccl-ext`.
//!
//! * [`ep`]: expert parallelism, run and proved on recorded or generated routing, or planned.
//! * [`m2n`]: reshards, planned and run.
//! * [`routing`]: reads recorded routing or generates it.
//! * [`oracle`]: what dispatch and combine must give, computed from the routing by plain loops.
//! * [`rules`]: every rule that the crates check before a native call.
//! * [`info`]: which backends and libraries there are.
//! * [`failure`], [`output`]: why the tool ends, and how it writes.
//!
//! A library so that tests reach the parts; it promises no stable interface.

mod broken_rule;
mod cpu_ranks;
pub mod ep;
pub mod failure;
pub mod info;
pub mod m2n;
pub mod oracle;
pub mod output;
pub mod routing;
mod rows;
pub mod rules;

pub use broken_rule::BrokenRule;
