//! Sends whose receiving half is left to `ncclEpComplete` (EP 6.1).

use std::rc::Rc;

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_core::{Comm, Reduction, Stream, bf16};
use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

/// One expert a token, and two, with weights that give the token back.
const SINGLE: Fixture =
    Fixture { topk: 1, ids: |r| vec![3 - r as i64, 0, 2, 1], weight: |_, _| 1.0, ..G2 };
const DOUBLE: Fixture =
    Fixture { ids: |r| vec![0, 2, 1, 3 - r as i64, 3, 0, 2, 1], weight: |_, _| 0.5, ..G2 };

/// Copies that each expert of a rank gets.
const SINGLE_COUNTS: [[i32; 2]; 2] = [[2, 2], [3, 1]];
const DOUBLE_COUNTS: [[i32; 2]; 2] = [[4, 4], [5, 3]];

/// A round in which each half is staged or not, as `staged` says of dispatch and combine.
fn round_trip(ll: &LowLatencyRank, staged: [bool; 2]) -> (LowLatencyReceived, Vec<f32>) {
    let overwritten = bf16::from_f32(-1.0);
    let mut call = ll.dispatch_call(LL_HIDDEN);
    if staged[0] {
        call = call.staged();
        assert_ok(call.call(&ll.handle));
        // The outputs' rows keep their bytes until the completion, whatever the peers do.
        assert_untouched(call.out_tokens.as_ref().unwrap());
        // The input is free already.
        call.tokens.as_mut().unwrap().data.fill(overwritten);
        if let Some(weights) = &mut call.weights {
            weights.data.fill(-1.0);
        }
        assert_ok(complete(&ll.handle));
    } else {
        assert_ok(call.call(&ll.handle));
    }
    let received = ll.received(call);
    let mut call = ll.combine_call(&received.rows, LL_HIDDEN);
    if staged[1] {
        call = call.staged();
        assert_ok(call.call(&ll.handle));
        assert_untouched(call.out.as_ref().unwrap());
        call.tokens.as_mut().unwrap().data.fill(overwritten);
        assert_ok(complete(&ll.handle));
    } else {
        assert_ok(call.call(&ll.handle));
    }
    (received, row_values(&call.out.unwrap().data, LL_HIDDEN))
}

fn assert_untouched(tensor: &TestTensor<bf16>) {
    assert!(row_values(&tensor.data, LL_HIDDEN).iter().all(|&x| x == CANARY));
}

/// Handles of [`SINGLE`] and [`DOUBLE`] on one group.
fn two_handles(comm: &Comm, layout: ncclEpLayout_t) -> [LowLatencyRank; 2] {
    let group = Rc::new(TestGroup::new(comm, &G2.config(LOW_LATENCY, LL_HIDDEN)));
    [SINGLE, DOUBLE].map(|fixture| LowLatencyRank::on(group.clone(), comm.rank(), fixture, layout))
}

/// Which halves are staged.
const STAGES: [[bool; 2]; 4] = [[false; 2], [true; 2], [false, true], [true, false]];

/// EP vector L13.
#[test]
fn two_expert_major_handles_interleave_staged_and_not() {
    both_ways(2, |comm| {
        let handles = two_handles(comm, EXPERT_MAJOR);
        for staged in STAGES {
            for (ll, counts) in handles.iter().zip([SINGLE_COUNTS, DOUBLE_COUNTS]) {
                let (received, combined) = round_trip(ll, staged);
                assert_eq!(received.counters, counts[comm.rank()], "{staged:?}");
                assert_eq!(combined, (G2.values)(comm.rank()), "{staged:?}");
            }
        }
        let [single, double] = &handles;
        let rows = [single.dispatch().rows, double.dispatch().rows];
        assert_eq!(double.combine(&rows[1]), (G2.values)(comm.rank()));
        assert_eq!(single.combine(&rows[0]), (G2.values)(comm.rank()));
    });
}

#[test]
fn two_rank_major_handles_interleave_staged_and_not() {
    both_ways(2, |comm| {
        let handles = two_handles(comm, RANK_MAJOR);
        let values = (G2.values)(comm.rank());
        // Weighting is the caller's job: a token that two ranks have comes back twice.
        let scaled = |rows: &[f32], by: f32| rows.iter().map(|x| x * by).collect::<Vec<_>>();
        for staged in STAGES {
            for (ll, (count, copies)) in handles.iter().zip([(2, 1.), (4, 2.)]) {
                let (received, combined) = round_trip(ll, staged);
                assert_eq!(received.counters, [count; 2], "{staged:?}");
                assert_eq!(combined, scaled(&values, copies), "{staged:?}");
            }
        }
        let [single, double] = &handles;
        let rows = [single.dispatch().rows, double.dispatch().rows];
        assert_eq!(double.combine(&scaled(&rows[1], 0.5)), values);
        assert_eq!(single.combine(&rows[0]), values);
    });
}

#[test]
fn staged_rounds_equal_full_ones() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        both_ways(2, |comm| {
            let ll = LowLatencyRank::new(comm, G2, layout);
            let full = round_trip(&ll, [false; 2]);
            for _ in 0..3 {
                assert_eq!(round_trip(&ll, [true; 2]), full);
            }
        });
    });
}

#[test]
fn one_rank_stages_and_the_other_does_not() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        both_ways(2, |comm| {
            let ll = LowLatencyRank::new(comm, G2, layout);
            let full = round_trip(&ll, [false; 2]);
            for turn in 0..6 {
                assert_eq!(
                    round_trip(&ll, [turn % 2 == comm.rank(), turn % 3 == comm.rank()]),
                    full
                );
            }
        });
    });
}

#[test]
fn a_full_operation_does_not_wait_for_a_staged_peers_completion() {
    let barrier = std::sync::Barrier::new(2);
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, RANK_MAJOR);
        let full = ll.dispatch();
        let mut call = ll.dispatch_call(LL_HIDDEN);
        if comm.rank() == 0 {
            call = call.staged();
            assert_ok(call.call(&ll.handle));
            // Rank 1 is through its dispatch and has overwritten its tokens.
            barrier.wait();
            assert_ok(complete(&ll.handle));
        } else {
            assert_ok(call.call(&ll.handle));
            call.tokens.as_mut().unwrap().data.fill(bf16::from_f32(-1.0));
            barrier.wait();
        }
        assert_eq!(ll.received(call), full);
    });
}

#[test]
fn a_completion_never_reads_what_a_full_peer_has_taken_back() {
    // Rank 1 sends all it can to rank 0 and overwrites it, last token first, as soon as its call
    // returns; rank 0 has staged nothing and is still copying then if nobody keeps it from that.
    const HIDDEN: usize = 8192;
    const MOST: usize = 64;
    let one_way = Fixture {
        max_tokens: MOST,
        ids: |r| if r == 1 { [0, 1].repeat(MOST) } else { vec![] },
        values: |r| (0..if r == 1 { MOST } else { 0 }).map(|t| t as f32).collect(),
        ..G2
    };
    both_ways(2, |comm| {
        let config = one_way.config(LOW_LATENCY, HIDDEN);
        let ll = LowLatencyRank::on(
            TestGroup::new(comm, &config).into(),
            comm.rank(),
            one_way,
            RANK_MAJOR,
        );
        for _ in 0..20 {
            let mut call = ll.dispatch_call(HIDDEN);
            if comm.rank() == 0 {
                call = call.staged();
                assert_ok(call.call(&ll.handle));
                assert_ok(complete(&ll.handle));
                let rows = row_values(&call.out_tokens.unwrap().data, HIDDEN);
                assert_eq!(rows[MOST..], (one_way.values)(1));
            } else {
                assert_ok(call.call(&ll.handle));
                let data = &mut call.tokens.as_mut().unwrap().data;
                data.iter_mut().rev().for_each(|x| *x = bf16::from_f32(-1.0));
            }
        }
    });
}

#[test]
fn nothing_else_runs_between_a_staged_send_and_its_completion() {
    both_ways(2, |comm| {
        let group = Rc::new(TestGroup::new(comm, &G2.config(LOW_LATENCY, LL_HIDDEN)));
        let ll = LowLatencyRank::on(group.clone(), comm.rank(), G2, EXPERT_MAJOR);
        let other = LowLatencyRank::on(group, comm.rank(), SINGLE, EXPERT_MAJOR);
        let full = ll.dispatch();
        let mut call = ll.dispatch_call(LL_HIDDEN).staged();
        assert_ok(call.call(&ll.handle));
        let code = other.dispatch_call(LL_HIDDEN).call(&other.handle);
        assert_refused(code, INVALID_USAGE, FailureClass::Trap);
        let mut again = ll.dispatch_call(LL_HIDDEN).staged();
        assert_refused(again.call(&ll.handle), INVALID_USAGE, FailureClass::Trap);
        assert_ok(complete(&other.handle));
        assert_ok(complete(&ll.handle));
        let received = ll.received(call);
        assert_eq!(received.counters, [[3, 3], [3, 4]][comm.rank()]);
        assert_eq!(received, full);
        assert_eq!(other.dispatch().counters, SINGLE_COUNTS[comm.rank()]);
    });
}

#[test]
fn the_communicator_is_free_while_a_send_is_staged() {
    every_rank(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, EXPERT_MAJOR);
        let mut call = ll.dispatch_call(LL_HIDDEN).staged();
        assert_ok(call.call(&ll.handle));
        let mut sum = [0_i32];
        let (one, stream) = ([1_i32], Stream::DEFAULT);
        comm.all_reduce(&one, &mut sum, Reduction::Sum, stream).unwrap();
        assert_eq!(sum, [2]);
        assert_ok(complete(&ll.handle));
        assert_eq!(ll.received(call).counters, [[3, 3], [3, 4]][comm.rank()]);
    });
}
