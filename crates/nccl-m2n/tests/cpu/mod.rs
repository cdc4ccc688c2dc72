//! Small worlds on the CPU backend.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::fmt::Debug;
use std::time::Duration;

use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};
use nccl_m2n::{
    Comm, DistTensor, DistTensorMut, Error, Layout, MemorySpace, Result, Runtime, Stream,
};

pub const STREAM: Stream<'static> = Stream::DEFAULT;

/// Runs `body` on every rank; each must succeed.
pub fn on_ranks<T: Send + Debug>(ranks: usize, body: impl Fn(Comm) -> Result<T> + Sync) -> Vec<T> {
    let results = outcomes(ranks, body);
    results.into_iter().map(|result| result.unwrap()).collect()
}

/// Runs `body` on every rank with a short time-out and gives each rank's result.
pub fn outcomes<T: Send>(
    ranks: usize,
    body: impl Fn(Comm) -> Result<T> + Sync,
) -> Vec<Result<T, RankFailure<Error>>> {
    run_ranks(ranks, &CpuConfig::new().timeout(Duration::from_secs(20)), body)
}

/// What every rank's error says. Each must have one.
pub fn errors(ranks: usize, body: impl Fn(Comm) -> Result<()> + Sync) -> Vec<Error> {
    let results = outcomes(ranks, body).into_iter();
    results
        .map(|result| match result {
            Err(RankFailure::Error(error)) => error,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// A tile of bytes, whatever the layout's type.
pub fn source<'a>(tile: &'a [u8], layout: &Layout) -> DistTensor<'a> {
    if tile.is_empty() && layout.local_bytes() != 0 {
        return DistTensor::inactive(layout);
    }
    // SAFETY: the slice is borrowed for as long as the tensor lives, and the CPU backend is done
    // when a call returns.
    unsafe { DistTensor::from_raw(tile.as_ptr().cast(), layout, MemorySpace::Host) }
}

/// As [`source`], to be written.
pub fn destination<'a>(tile: &'a mut [u8], layout: &Layout) -> DistTensorMut<'a> {
    if tile.is_empty() && layout.local_bytes() != 0 {
        return DistTensorMut::inactive(layout);
    }
    // SAFETY: as above, borrowed mutably.
    unsafe { DistTensorMut::from_raw(tile.as_mut_ptr().cast(), layout, MemorySpace::Host) }
}

/// Reshards one tensor of bytes.
pub fn reshard(
    runtime: &Runtime,
    comm: &Comm,
    from: (&[u8], &Layout),
    to: (&mut [u8], &Layout),
) -> Result<()> {
    let mut destination = destination(to.0, to.1);
    runtime.reshard(comm, &source(from.0, from.1), &mut destination, STREAM)
}
