//! Expert-major.

use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;

/// EP vector L1.
#[test]
fn an_expert_has_the_rows_of_the_tokens_that_name_it() {
    both_ways(2, |comm| {
        let received = LowLatencyRank::new(comm, G2, EXPERT_MAJOR).dispatch();
        let (counters, sets): ([i32; 2], [&[f32]; 2]) = match comm.rank() {
            0 => ([3, 3], [&[1., 3., 7.], &[2., 3., 7.]]),
            _ => ([3, 4], [&[1., 5., 8.], &[2., 6., 6., 8.]]),
        };
        assert_eq!(received.counters, counters);
        // This backend's order is that of source and token, which ascends here.
        assert_eq!([received.rows_of(0), received.rows_of(1)], sets);
    });
}

/// EP vector L2.
#[test]
fn rows_beyond_the_counters_are_untouched() {
    both_ways(2, |comm| {
        let received = LowLatencyRank::new(comm, G2, EXPERT_MAJOR).dispatch();
        assert_eq!(received.dead().count(), 16 - received.counters.iter().sum::<i32>() as usize);
        assert!(received.dead().all(|(_, value)| value == CANARY));
    });
}

/// EP vector L3.
#[test]
fn combine_applies_the_weights() {
    both_ways(2, |comm| {
        let sums = LowLatencyRank::new(comm, G2, EXPERT_MAJOR).round_trip();
        assert_eq!(sums, [[2.25, 8.5, 18.75, 0.], [25., 73.5, 100., 130.]][comm.rank()]);
    });
}

/// EP vector L14.
#[test]
fn combine_needs_weights() {
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, EXPERT_MAJOR);
        let rows = ll.dispatch().rows;
        let mut call = ll.combine_call(&rows, LL_HIDDEN);
        call.weights = None;
        assert_refused(call.call(&ll.handle), INVALID_ARGUMENT, FailureClass::Throw);
    });
}

/// EP vector L15.
#[test]
fn dispatch_needs_a_layout_info() {
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, EXPERT_MAJOR);
        let mut call = ll.dispatch_call(LL_HIDDEN);
        call.no_info = true;
        assert_refused(call.call(&ll.handle), INVALID_ARGUMENT, FailureClass::Assert);
    });
}

/// EP vector L20.
#[test]
fn halves_give_the_token_back() {
    let halves = Fixture {
        ids: |_| vec![0, 3, 2, 1],
        values: |r| vec![r as f32 + 1.375, -3.0],
        weight: |_, _| 0.5,
        ..G2
    };
    both_ways(2, |comm| {
        let sums = LowLatencyRank::new(comm, halves, EXPERT_MAJOR).round_trip();
        assert_eq!(sums, (halves.values)(comm.rank()));
    });
}

#[test]
fn duplicates_that_overfill_an_expert_are_refused_everywhere() {
    // Four tokens a rank, twice each to expert 0: 16 copies for 8 rows.
    let duplicates = Fixture { ids: |_| vec![0; 8], ..G2 };
    every_rank(2, |comm| {
        let ll = LowLatencyRank::new(comm, duplicates, EXPERT_MAJOR);
        let code = ll.dispatch_call(LL_HIDDEN).call(&ll.handle);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
        let mut call = ll.combine_call(&[0.0; 16], LL_HIDDEN);
        assert_refused(call.call(&ll.handle), INVALID_USAGE, FailureClass::UndefinedBehaviour);
    });
}
