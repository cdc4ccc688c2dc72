//! Masks on which the ranks agree, or which cost nobody time.

use std::time::Instant;

use nccl_ext_core::bf16;
use nccl_ext_test::cpu::ep::masks::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

use super::{assert_whole_round, dispatch_and_combine, on_two_masked_ranks};

#[test]
fn nobody_masked_is_as_without_masks() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        both_ways(2, |comm| {
            let group = masked_group(comm, G2, LONG_TIMEOUT);
            let ll = LowLatencyRank::on(group, comm.rank(), G2, layout);
            let plain = LowLatencyRank::new(comm, G2, layout);
            for _ in 0..3 {
                let (found, expected) = (ll.dispatch(), plain.dispatch());
                assert_eq!(found, expected);
                assert_eq!(ll.combine(&found.rows), plain.combine(&expected.rows));
                // A second combine of one dispatch.
                assert_eq!(ll.combine(&found.rows), plain.combine(&expected.rows));
            }
            assert_whole_round(&ll);
            assert_eq!(ll.group.async_error(), 0);
        });
    });
}

/// EP vector L21.
#[test]
fn ranks_that_mask_each_other_keep_their_own_rows() {
    on_two_masked_ranks(LONG_TIMEOUT, RANK_MAJOR, |me, ll| {
        ll.group.set_mask(&[[1, 0], [0, 1]][me]);
        let start = Instant::now();
        let (counts, live, sums) = dispatch_and_combine(ll);
        let expected: [(_, &[f32], _); 2] =
            [([3, 0], &[1., 2., 3.], [1., 2., 3., 0.]), ([0, 3], &[5., 6., 8.], [5., 6., 0., 8.])];
        assert_eq!((counts, &live[..], sums), {
            let (counts, live, sums) = expected[me];
            (counts.to_vec(), live, sums.to_vec())
        });
        assert!(start.elapsed() < LONG_TIMEOUT, "masked ranks are not waited for");
        assert_eq!(ll.group.async_error(), 0);
    });
}

#[test]
fn ranks_that_mask_each_other_keep_their_own_experts() {
    on_two_masked_ranks(LONG_TIMEOUT, EXPERT_MAJOR, |me, ll| {
        ll.group.set_mask(&[[1, 0], [0, 1]][me]);
        let (counts, live, sums) = dispatch_and_combine(ll);
        // Rank 0 keeps its tokens 1, 3 for expert 0 and 2, 3 for expert 1.
        let expected: [([i32; 2], &[f32]); 2] =
            [([2, 2], &[1., 3., 2., 3.]), ([2, 3], &[5., 8., 6., 6., 8.])];
        assert_eq!((&counts[..], &live[..]), (&expected[me].0[..], expected[me].1));
        let weight = |v: f32, k: usize| v + k as f32 / 4.0;
        let sum = |v: f32, ks: &[usize]| {
            let sum: f32 = ks.iter().map(|&k| v * weight(v, k)).sum();
            bf16::from_f32(sum).to_f32()
        };
        let expected = match me {
            0 => [sum(1., &[0]), sum(2., &[1]), sum(3., &[0, 1]), 0.],
            _ => [sum(5., &[0]), sum(6., &[0, 1]), 0., sum(8., &[0, 1])],
        };
        assert_eq!(sums, expected);
    });
}

/// EP vector L22.
#[test]
fn all_ranks_are_active_after_creation() {
    both_ways(3, |comm| {
        let fixture = Fixture { ranks: 3, experts: 6, ..G2 };
        let group = masked_group(comm, fixture, LONG_TIMEOUT);
        assert_eq!(group.mask(3), [1, 1, 1]);
        group.set_mask(&[1, 7, 0]);
        // Values are kept as they are given.
        assert_eq!(group.mask(3), [1, 7, 0]);
    });
}

#[test]
fn values_other_than_0_are_active() {
    on_two_masked_ranks(LONG_TIMEOUT, RANK_MAJOR, |_, ll| {
        ll.group.set_mask(&[-1, 7]);
        assert_whole_round(ll);
        assert_eq!(ll.group.mask(2), [-1, 7]);
    });
}

#[test]
fn a_rank_that_masks_itself_keeps_out_its_own_rows() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        on_two_masked_ranks(LONG_TIMEOUT, layout, |me, ll| {
            if me == 0 {
                ll.group.set_mask(&[0, 1]);
            }
            let (counts, _, sums) = dispatch_and_combine(ll);
            if layout == RANK_MAJOR {
                assert_eq!(counts, [[0, 1], [2, 3]][me]);
                // Rank 0's tokens keep what rank 1 gives back.
                assert_eq!(sums, [[1., 2., 0., 0.], [5., 6., 7., 8.]][me]);
            } else {
                assert_eq!(counts, [[1, 1], [3, 4]][me]);
                // Of rank 0's entries those to experts 2 and 3 are left: 1 x 1.25 and 2 x 2.
                assert_eq!(sums, [[1.25, 4., 0., 0.], [25., 73.5, 100., 130.]][me]);
            }
            assert_eq!(ll.group.async_error(), 0);
        });
    });
}

#[test]
fn three_ranks_go_on_without_the_masked_one() {
    let fixture = Fixture {
        ranks: 3,
        experts: 6,
        ids: |_| vec![0, 2, 4, 1, 5, 3],
        values: |r| (0..3).map(|t| (10 * r + t + 1) as f32).collect(),
        ..G2
    };
    let done = RankBarrier::new(3);
    both_ways(3, |comm| {
        let me = comm.rank();
        let ll = LowLatencyRank::masked(comm, fixture, LONG_TIMEOUT, RANK_MAJOR);
        if me == 1 {
            done.wait();
            return;
        }
        ll.group.set_mask(&[1, 0, 1]);
        let base = 10. * me as f32;
        for _ in 0..4 {
            let (counts, live, sums) = dispatch_and_combine(&ll);
            assert_eq!(counts, [2, 0, 2]);
            let tokens = [[1., 2.], [2., 3.]][me / 2];
            assert_eq!(live, [tokens[0], tokens[1], 20. + tokens[0], 20. + tokens[1]]);
            assert_eq!(sums, [base + 1., 2. * (base + 2.), base + 3.]);
        }
        assert_eq!(ll.group.async_error(), 0);
        done.wait();
    });
}

#[test]
fn ranks_unmask_each_other_by_update() {
    on_two_masked_ranks(LONG_TIMEOUT, RANK_MAJOR, |me, ll| {
        ll.group.set_mask(&[[1, 0], [0, 1]][me]);
        assert_eq!(dispatch_and_combine(ll).0, [[3, 0], [0, 3]][me]);
        ll.group.set_mask(&[1, 1]);
        assert_whole_round(ll);
        assert_whole_round(ll);
    });
}

#[test]
fn a_contribution_of_a_rank_that_missed_the_dispatch_is_left_out() {
    let met = RankBarrier::new(2);
    on_two_masked_ranks(LONG_TIMEOUT, RANK_MAJOR, |me, ll| {
        ll.group.set_mask(&[[1, 0], [0, 1]][me]);
        let received = ll.dispatch();
        met.wait();
        // Active again for the combine only: there is nothing of the other's to give back.
        ll.group.set_mask(&[1, 1]);
        let expected = [[1., 2., 3., 0.], [5., 6., 0., 8.]];
        assert_eq!(ll.combine(&received.rows), expected[me]);
        assert_eq!(ll.group.mask(2), [1, 1]);
    });
}
