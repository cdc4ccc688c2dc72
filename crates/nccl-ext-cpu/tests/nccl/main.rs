//! The NCCL and driver subset of the CPU backend, and what becomes of its worlds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod collectives;
mod devices;
mod failing;
mod joining;
mod memory;
mod queries;

use std::time::Duration;

use nccl_ext_core::{Comm, Error, Reduction, Stream};
use nccl_ext_cpu::CpuConfig;

/// A time-out that tests wait for.
fn impatient() -> CpuConfig {
    CpuConfig::new().timeout(Duration::from_millis(60))
}

/// The sum of the numbers of all ranks.
fn rank_sum(comm: &Comm) -> Result<i32, Error> {
    let mut total = [0];
    comm.all_reduce(&[comm.rank() as i32], &mut total, Reduction::Sum, Stream::DEFAULT)?;
    Ok(total[0])
}
