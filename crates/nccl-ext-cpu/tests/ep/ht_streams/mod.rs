//! High throughput where calls return before their work is done: the tables are called directly,
//! past the order that the safe layer makes.

mod later;
mod races;
mod steps;

use nccl_ext_core::{Comm, Error, OwnedStream};
use nccl_ext_cpu::run_ranks;
use nccl_ext_test::worlds::{Outcome, config};

/// Delays that put unordered work into one order and into the other.
const SEEDS: std::ops::Range<u64> = 0..6;

/// Runs `body` on two ranks with two streams each; how each rank ended.
fn on_two_streams<T: Send>(
    seed: u64,
    body: impl Fn(&Comm, [&OwnedStream; 2]) -> Result<T, Error> + Sync,
) -> Vec<Outcome<T>> {
    run_ranks(2, &config().deferred(seed), |comm| {
        let streams = [OwnedStream::new(&comm)?, OwnedStream::new(&comm)?];
        body(&comm, [&streams[0], &streams[1]])
    })
}
