//! Ranks that come late, or not at all.

use std::time::{Duration, Instant};

use nccl_ext_core::{Comm, Error};
use nccl_ext_cpu::run_ranks;
use nccl_ext_test::cpu::ep::masks::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;
use nccl_ext_test::worlds;

use super::{dispatch_and_combine, on_two_masked_ranks};

/// EP vector L24.
#[test]
fn less_than_a_millisecond_is_no_time() {
    let late = RankBarrier::new(2);
    both_ways(2, |comm| {
        let me = comm.rank();
        let ll = LowLatencyRank::masked(comm, G2, Duration::from_nanos(999_999), RANK_MAJOR);
        if me == 1 {
            late.wait();
            // Rank 0's packet is there, so nothing has to be waited for.
            let received = ll.dispatch();
            assert_eq!(received.counters, [2, 3]);
            ll.group.assert_mask(&[1, 1], 0);
        } else {
            // Rank 1 has not come: rank 0 does not wait, and goes on with its own rows.
            let start = Instant::now();
            let received = ll.dispatch();
            assert!(start.elapsed() < Duration::from_secs(5));
            assert_eq!(received.counters, [3, 0]);
            ll.group.assert_mask(&[1, 0], 1);
            late.wait();
        }
    });
}

/// EP vector L25.
#[test]
fn the_error_flag_starts_clear_and_is_cleared() {
    let late = RankBarrier::new(2);
    on_two_masked_ranks(Duration::from_nanos(1), RANK_MAJOR, |me, ll| {
        ll.group.assert_mask(&[1, 1], 0);
        ll.group.clear_error();
        ll.group.assert_mask(&[1, 1], 0);
        // Rank 0 does not find rank 1, which sets the flag.
        if me == 0 {
            assert_eq!(ll.dispatch().counters, [3, 0]);
            ll.group.assert_mask(&[1, 0], 1);
            ll.group.clear_error();
            ll.group.assert_mask(&[1, 0], 0);
        }
        late.wait();
    });
}

#[test]
fn a_rank_that_is_masked_alone_times_out_and_masks_back() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        on_two_masked_ranks(SHORT_TIMEOUT, layout, |me, ll| {
            if me == 0 {
                ll.group.set_mask(&[1, 0]);
            }
            let start = Instant::now();
            let (counts, ..) = dispatch_and_combine(ll);
            let waited = start.elapsed();
            let own = if layout == RANK_MAJOR { [[3, 0], [0, 3]] } else { [[2, 2], [2, 3]] };
            assert_eq!(counts, own[me]);
            if me == 0 {
                ll.group.assert_mask(&[1, 0], 0);
            } else {
                assert!(waited >= SHORT_TIMEOUT, "{waited:?}");
                ll.group.assert_mask(&[0, 1], 1);
            }
        });
    });
}

#[test]
fn a_rank_that_comes_late_is_left_out() {
    let met = RankBarrier::new(2);
    on_two_masked_ranks(SHORT_TIMEOUT, RANK_MAJOR, |me, ll| {
        if me == 0 {
            let (counts, _, sums) = dispatch_and_combine(ll);
            assert_eq!((counts, sums), (vec![3, 0], vec![1., 2., 3., 0.]));
            ll.group.assert_mask(&[1, 0], 1);
            ll.group.clear_error();
            ll.group.assert_mask(&[1, 0], 0);
            met.wait();
        } else {
            met.wait();
            // Rank 0's dispatch came through, its combine does not any more.
            let received = ll.dispatch();
            assert_eq!(received.counters, [2, 3]);
            ll.group.assert_mask(&[1, 1], 0);
            assert_eq!(ll.combine(&received.rows), [5., 6., 0., 8.]);
            ll.group.assert_mask(&[0, 1], 1);
        }
    });
}

#[test]
fn a_rank_that_left_is_masked_without_waiting() {
    let results = run_ranks(3, &worlds::config(), |comm: Comm| {
        let fixture = Fixture {
            ranks: 3,
            experts: 6,
            ids: |_| vec![0, 2, 4, 1],
            values: |r| vec![r as f32 + 1., r as f32 + 5.],
            ..G2
        };
        let group = TestGroup::new(&comm, &masked_config(fixture, LONG_TIMEOUT));
        let me = comm.rank();
        if me == 2 {
            std::mem::forget(group);
            return Ok::<_, Error>(());
        }
        let ll = LowLatencyRank::on(group.into(), me, fixture, RANK_MAJOR);
        let start = Instant::now();
        let (counts, _, sums) = dispatch_and_combine(&ll);
        assert!(start.elapsed() < LONG_TIMEOUT);
        assert_eq!(counts, [[2, 2, 0], [1, 1, 0]][me]);
        let value = me as f32;
        assert_eq!(sums, [2. * (value + 1.), value + 5.]);
        ll.group.assert_mask(&[1, 1, 0], 1);
        // Destroying is a collective of all ranks, of which one is gone.
        std::mem::forget(ll);
        Ok(())
    });
    for result in results {
        result.unwrap();
    }
}

#[test]
fn an_old_packet_of_a_masked_rank_is_not_taken_for_a_new_one() {
    let fence = RankBarrier::new(2);
    on_two_masked_ranks(SHORT_TIMEOUT, RANK_MAJOR, |me, ll| {
        // Rank 1 sends to rank 0, which does not look, and then masks it in turn.
        if me == 0 {
            ll.group.set_mask(&[1, 0]);
        }
        let received = ll.dispatch();
        assert_eq!(received.counters, [[3, 0], [0, 3]][me]);
        fence.wait();
        assert_eq!(ll.combine(&received.rows), [[1., 2., 3., 0.], [5., 6., 0., 8.]][me]);
        fence.wait();
        ll.group.set_mask(&[1, 1]);
        fence.wait();
        if me == 0 {
            // Rank 1 does not come to this one.
            assert_eq!(ll.dispatch().counters, [3, 0]);
        }
        fence.wait();
    });
}
