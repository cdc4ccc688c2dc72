//! EP 9.5: more tokens than the budget has room for.

use nccl_ep_sys::*;
use nccl_ext_core::{Comm, Error};
use nccl_ext_cpu::{CpuConfig, FailureClass, last_refusal, run_ranks};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

const DROP: ncclEpOverflowPolicy_t = ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;

fn dropping(
    comm: &Comm,
    fixture: Fixture,
    layout: ncclEpLayout_t,
    alignment: usize,
) -> HighThroughputRank {
    HighThroughputRank::with(comm, fixture, layout, alignment, |c| c.overflow_policy = DROP)
}

/// F4's sizes, all tokens to expert 0, and room for half of them.
pub(crate) const ALL_TO_0: Fixture = Fixture { ids: |_| vec![0; 4], max_recv: 8, ..F4 };

/// EP vector O1.
#[test]
fn flat_drop_counts_what_came_and_combines_what_stayed() {
    both_ways(4, |comm| {
        let ht = dropping(comm, ALL_TO_0, FLAT, 0);
        assert_eq!(ht.published.total, [16, 0, 0, 0][comm.rank()]);
        let rows = ht.dispatch().rows;
        // Ranks 0 and 1 fill the budget; the tokens of the others come back as zeros.
        let expected = if comm.rank() < 2 { (F4.values)(comm.rank()) } else { vec![0.0; 4] };
        assert_eq!(ht.combine(&rows), expected);
    });
}

/// EP vector O2.
#[test]
fn flat_drop_keeps_the_first_ranks() {
    both_ways(4, |comm| {
        let ht = dropping(comm, ALL_TO_0, FLAT, 0);
        let rows = ht.receive(ht.dispatch_into(9)).rows;
        if comm.rank() == 0 {
            assert_eq!(rows, [1., 2., 3., 4., 5., 6., 7., 8., CANARY]);
        }
        let sums = ht.combine(&rows);
        let expected = if comm.rank() < 2 { (F4.values)(comm.rank()) } else { vec![0.0; 4] };
        assert_eq!(sums, expected);
    });
}

/// EP vector O3.
#[test]
fn flat_drop_leaves_the_dropped_out_of_the_counters() {
    both_ways(4, |comm| {
        let counters = dropping(comm, ALL_TO_0, FLAT, 0).published.counters;
        assert_eq!(counters, if comm.rank() == 0 { [8, 0] } else { [0, 0] });
    });
}

/// EP vector O4.
#[test]
fn permute_drop_with_a_zone_as_large_as_the_budget() {
    let fixture = Fixture { ids: |_| vec![0, 1, 0, 1], max_recv: 16, ..F4 };
    both_ways(4, |comm| {
        let ht = dropping(comm, fixture, EXPERT_MAJOR, 16);
        let received = ht.receive(ht.dispatch_into(18));
        if comm.rank() == 0 {
            let published =
                PublishedCounters { counters: vec![16, 0], offsets: vec![0, 16], total: 32 };
            assert_eq!(ht.published, published);
            assert_eq!(received.rows[..8], [1., 3., 5., 7., 9., 11., 13., 15.]);
            assert_eq!(received.rows[8..16], [0.0; 8]);
            assert_eq!(received.weights[8..16], [0.0; 8]);
        }
        assert_eq!(received.rows[16..], [CANARY; 2]);
        assert_eq!(received.weights[16..], [CANARY; 2]);
        let r = 4.0 * comm.rank() as f32;
        assert_eq!(ht.combine(&received.rows), [r + 1., 0., r + 3., 0.]);
    });
}

/// EP vector O5.
#[test]
fn permute_drop_with_phantom_rows() {
    let fixture = Fixture { ids: |_| vec![0, 0, 1, 1], max_recv: 8, ..F4 };
    both_ways(4, |comm| {
        let ht = dropping(comm, fixture, EXPERT_MAJOR, 4);
        let rows = ht.dispatch().rows;
        if comm.rank() == 0 {
            let published =
                PublishedCounters { counters: vec![8, 0], offsets: vec![0, 8], total: 16 };
            assert_eq!(ht.published, published);
            assert_eq!(rows, [1., 2., 5., 6., 0., 0., 0., 0.]);
        }
        let expected = match comm.rank() {
            r @ 0..2 => [4. * r as f32 + 1., 4. * r as f32 + 2., 0., 0.],
            _ => [0.0; 4],
        };
        assert_eq!(ht.combine(&rows), expected);
    });
}

/// EP vector O6.
#[test]
fn permute_drop_cuts_the_second_zone() {
    let fixture = Fixture {
        topk: 1,
        max_recv: 8,
        ids: |r| [vec![0, 0, 0, 1], vec![0, 0, 1, 1]][r].clone(),
        ..G2
    };
    both_ways(2, |comm| {
        let ht = dropping(comm, fixture, EXPERT_MAJOR, 2);
        let rows = ht.dispatch().rows;
        if comm.rank() == 0 {
            let published =
                PublishedCounters { counters: vec![6, 2], offsets: vec![0, 6], total: 10 };
            assert_eq!(ht.published, published);
            assert_eq!(rows, [1., 2., 3., 5., 6., 0., 4., 7.]);
        }
        let expected = [[1., 2., 3., 4.], [5., 6., 7., 0.]];
        assert_eq!(ht.combine(&rows), expected[comm.rank()]);
    });
}

/// G2's sizes, all tokens to expert 0, and room for one rank's.
const PAIR_TO_0: Fixture = Fixture { topk: 1, ids: |_| vec![0; 4], max_recv: 4, ..G2 };

/// EP vector O7.
#[test]
fn flat_drop_of_a_whole_rank() {
    both_ways(2, |comm| {
        let ht = dropping(comm, PAIR_TO_0, FLAT, 0);
        assert_eq!(ht.published.total, [8, 0][comm.rank()]);
        let rows = ht.dispatch().rows;
        if comm.rank() == 0 {
            assert_eq!(rows, [1., 2., 3., 4.]);
        }
        let expected = [[1., 2., 3., 4.], [0.0; 4]];
        assert_eq!(ht.combine(&rows), expected[comm.rank()]);
    });
}

#[test]
fn permute_drop_clamps_offsets_to_the_budget() {
    both_ways(2, |comm| {
        let ht = dropping(comm, PAIR_TO_0, EXPERT_MAJOR, 0);
        let published = match comm.rank() {
            0 => PublishedCounters { counters: vec![4, 0], offsets: vec![0, 4], total: 8 },
            _ => PublishedCounters { counters: vec![0, 0], offsets: vec![0, 0], total: 0 },
        };
        assert_eq!(ht.published, published);
    });
}

/// EP vector O8.
#[test]
fn an_overrun_update_is_an_error_on_every_rank() {
    check_rows(HIGH_THROUGHPUT_LAYOUTS, |layout| {
        let results = run_ranks(2, &CpuConfig::new(), |comm| {
            let mut ht = HighThroughputRank::fresh(&comm, PAIR_TO_0, layout, 0, |_| ());
            let code = ht.update(&mut PAIR_TO_0.ids(comm.rank()));
            let update = (code, last_refusal(), take_error().unwrap());
            // Nobody waits for the rank that was overrun.
            let code = ht.update(&mut TestTensor::filled(&[0, 1], 0_i64));
            Ok::<_, Error>((update, (code, take_error().unwrap())))
        });
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let [(overrun, after), (told, later)] = &results[..] else { panic!("{results:?}") };
        let (INVALID_USAGE, Some(FailureClass::Trap), Error::Native { detail, .. }) = overrun
        else {
            panic!("{results:?}");
        };
        assert!(detail.contains("at most 4 rows on rank 0") && detail.contains("found 8"));
        assert_eq!(after.0, REMOTE_ERROR);
        let (REMOTE_ERROR, None, Error::PeerFailed { rank: 0, error }) = told else {
            panic!("{results:?}");
        };
        assert_eq!(error.to_string(), overrun.2.to_string());
        let (REMOTE_ERROR, Error::PeerFailed { rank: 0, .. }) = later else {
            panic!("{results:?}");
        };
    });
}

fn dropping_dup(comm: &Comm, fixture: Fixture, alignment: usize) -> HighThroughputRank {
    let group = |c: &mut ncclEpGroupConfig_t| {
        c.overflow_policy = DROP;
        c.zero_copy = ZERO_COPY_ON;
    };
    HighThroughputRank::with(comm, fixture, EXPERT_MAJOR, alignment, group)
}

/// EP vector O13.
#[test]
fn dup_modes_drop_only_with_an_aligned_budget() {
    both_ways(4, |comm| {
        let mut config = Fixture { max_recv: 6, ..F4 }.config(HIGH_THROUGHPUT, HT_HIDDEN);
        config.overflow_policy = DROP;
        config.zero_copy = ZERO_COPY_ON;
        let group = TestGroup::new(comm, &config);
        let unaligned = (EXPERT_MAJOR, 1, 4);
        let class = FailureClass::UndefinedBehaviour;
        group.assert_handle_refused(unaligned, INVALID_ARGUMENT, class);
        drop(group.handle(EXPERT_MAJOR, 1, 2));
    });
}

#[test]
fn dup_modes_drop_copies_and_not_tokens() {
    // Rank 0's experts 0 and 1 get all eight tokens of both ranks; there are twelve rows.
    let fixture = Fixture { ids: |_| [0, 1].repeat(4), max_recv: 12, ..G2 };
    both_ways(2, |comm| {
        let ht = dropping_dup(comm, fixture, 4);
        if comm.rank() == 0 {
            let published =
                PublishedCounters { counters: vec![8, 4], offsets: vec![0, 8], total: 16 };
            assert_eq!(ht.published, published);
        }
        let rows = ht.receive(ht.dispatch_into(13).with_output_window(comm)).rows;
        if comm.rank() == 0 {
            assert_eq!(rows, [1., 2., 3., 4., 5., 6., 7., 8., 1., 2., 3., 4., CANARY]);
        }
        let sums = ht.sums(ht.combine_of(&rows).with_input_window(comm));
        assert_eq!(sums, [[2., 4., 6., 8.], [5., 6., 7., 8.]][comm.rank()]);
    });
}

#[test]
fn rows_beyond_the_budget_are_never_touched() {
    // The permute path zeroes the budget, and nothing beyond it.
    both_ways(4, |comm| {
        let ht = dropping(comm, ALL_TO_0, EXPERT_MAJOR, 0);
        let received = ht.receive(ht.dispatch_into(10));
        let expected = if comm.rank() == 0 { [1., 2., 3., 4., 5., 6., 7., 8.] } else { [0.0; 8] };
        assert_eq!(received.rows, [&expected[..], &[CANARY; 2]].concat());
        assert_eq!(received.weights[8..], [CANARY; 2]);
    });
}
