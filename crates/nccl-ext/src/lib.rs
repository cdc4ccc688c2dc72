//! The parts of the command line tool `nccl-ext`.
//!
//! * [`routing`]: reads recorded routing or generates it, the input of the demo.
//! * [`demo`]: dispatches and combines it on a backend and proves the result.
//! * [`oracle`]: what the result must be, computed from the file by plain loops.
//! * [`ep_plan`]: device memory of a model, planned.
//! * [`m2n`]: reshards, planned and run.
//! * [`info`]: which backends and libraries there are.
//!
//! A library so that tests reach the parts; it promises no stable interface.

pub mod demo;
pub mod ep_plan;
pub mod failure;
pub mod info;
pub mod m2n;
pub mod oracle;
pub mod output;
pub mod routing;
mod rows;
