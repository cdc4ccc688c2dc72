//! EP 6.2: masks, time-outs, and coming back.

mod agreeing;
mod clean;
mod late_ranks;
mod left_out_ids;
mod operations;

use std::time::Duration;

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_test::cpu::both_ways;
use nccl_ext_test::cpu::ep::*;

/// Runs `body` with its number on both ranks of G2, each on a masked group of its own.
#[track_caller]
fn on_two_masked_ranks(
    timeout: Duration,
    layout: ncclEpLayout_t,
    body: impl Fn(usize, &LowLatencyRank) + Sync,
) {
    both_ways(2, |comm| {
        body(comm.rank(), &LowLatencyRank::masked(comm, G2, timeout, layout));
    });
}

/// A dispatch and a combine of what it received: counts, live rows, sums.
#[track_caller]
fn dispatch_and_combine(ll: &LowLatencyRank) -> (Vec<i32>, Vec<f32>, Vec<f32>) {
    let received = ll.dispatch();
    let sums = ll.combine(&received.rows);
    (received.counters.clone(), received.live(), sums)
}

/// What ranks without masks get, once all take part.
#[track_caller]
fn assert_whole_round(ll: &LowLatencyRank) {
    let (counts, _, sums) = dispatch_and_combine(ll);
    let expected = match ll.handle.layout == RANK_MAJOR {
        true => ([[3, 1], [2, 3]], [[2., 4., 3., 0.], [5., 6., 7., 8.]]),
        false => ([[3, 3], [3, 4]], [[2.25, 8.5, 18.75, 0.], [25., 73.5, 100., 130.]]),
    };
    assert_eq!(counts, expected.0[ll.rank]);
    assert_eq!(sums, expected.1[ll.rank]);
}
