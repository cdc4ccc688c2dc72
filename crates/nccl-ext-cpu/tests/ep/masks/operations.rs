//! What masked groups share with others: staging, and the same operation on every rank.

use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::masks::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

#[test]
fn staged_operations_with_masks() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        both_ways(2, |comm| {
            let me = comm.rank();
            let ll = LowLatencyRank::masked(comm, G2, LONG_TIMEOUT, layout);
            let plain = LowLatencyRank::new(comm, G2, layout);
            for mutual in [false, true] {
                if mutual {
                    ll.group.set_mask(&[[1, 0], [0, 1]][me]);
                }
                let mut call = ll.dispatch_call(LL_HIDDEN).staged();
                assert_ok(call.call(&ll.handle));
                // In between nothing else of the group runs.
                let mut other = ll.dispatch_call(LL_HIDDEN);
                assert_refused(other.call(&ll.handle), INVALID_USAGE, FailureClass::Trap);
                assert_refused(ll.group.try_clean(), INVALID_USAGE, FailureClass::Trap);
                assert_ok(complete(&ll.handle));
                let received = ll.received(call);
                let mut call = ll.combine_call(&received.rows, LL_HIDDEN).staged();
                assert_ok(call.call(&ll.handle));
                assert_ok(complete(&ll.handle));
                let sums = row_values(&call.out.unwrap().data, LL_HIDDEN);
                if mutual {
                    let own = if layout == RANK_MAJOR {
                        assert_eq!(sums, [[1., 2., 3., 0.], [5., 6., 0., 8.]][me]);
                        [[3, 0], [0, 3]]
                    } else {
                        [[2, 2], [2, 3]]
                    };
                    assert_eq!(received.counters, own[me]);
                } else {
                    let expected = plain.dispatch();
                    assert_eq!(received, expected);
                    assert_eq!(sums, plain.combine(&expected.rows));
                }
            }
        });
    });
}

#[test]
fn ranks_in_different_operations_are_told() {
    every_rank(2, |comm| {
        let me = comm.rank();
        let group = masked_group(comm, G2, SHORT_TIMEOUT);
        let lls = [EXPERT_MAJOR, RANK_MAJOR]
            .map(|layout| LowLatencyRank::on(group.clone(), me, G2, layout));
        let mut call = lls[me].dispatch_call(LL_HIDDEN);
        assert_refused(call.call(&lls[me].handle), INVALID_USAGE, FailureClass::UndefinedBehaviour);
    });
}

#[test]
fn duplicates_that_overfill_an_expert_are_refused_where_they_arrive() {
    every_rank(2, |comm| {
        let fixture = Fixture { ids: |_| vec![0; 8], ..G2 };
        let ll = LowLatencyRank::masked(comm, fixture, LONG_TIMEOUT, EXPERT_MAJOR);
        let mut call = ll.dispatch_call(LL_HIDDEN);
        let code = call.call(&ll.handle);
        if comm.rank() == 0 {
            assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
            assert!(call.out_tokens.unwrap().data.iter().all(|x| x.to_f32() == CANARY));
            let mut combine = ll.combine_call(&[0.; 16], LL_HIDDEN);
            let code = combine.call(&ll.handle);
            assert_refused(code, INVALID_USAGE, FailureClass::UndefinedBehaviour);
        } else {
            assert_ok(code);
            assert_eq!(ll.received(call).counters, [0, 0]);
        }
    });
}
