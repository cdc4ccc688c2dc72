//! EP 9.5: eager groups, whose receivers have exactly the rows that come.

use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpLayout_t, ncclEpOverflowPolicy_t};
use nccl_ext_core::Comm;
use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

use super::overflow::ALL_TO_0;

fn eager(
    comm: &Comm,
    fixture: Fixture,
    layout: ncclEpLayout_t,
    alignment: usize,
) -> HighThroughputRank {
    HighThroughputRank::with(comm, fixture, layout, alignment, |c| {
        c.max_recv_tokens_per_rank = 0;
        c.num_topk = fixture.topk as u32;
    })
}

/// EP vector O9.
#[test]
fn outputs_have_exactly_the_total() {
    check_rows(HIGH_THROUGHPUT_LAYOUTS, |layout| {
        both_ways(4, |comm| {
            let ht = eager(comm, F4, layout, 0);
            let total = ht.published.total as usize;
            assert_eq!(total, 4);
            let code = ht.dispatch_into(total - 1).call(&ht.handle);
            assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
            let rows = ht.receive(ht.dispatch_into(total)).rows;
            assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
            // Rows beyond are untouched.
            let received = ht.receive(ht.dispatch_into(total + 2));
            assert_eq!(received.rows[..total], rows);
            assert_eq!(received.rows[total..], [CANARY; 2]);
            // One weight a row in F4.
            assert_eq!(received.weights, [[1.0; 4].as_slice(), &[CANARY; 2]].concat());
        });
    });
}

#[test]
fn alignment_may_exceed_the_bound() {
    // One token, padded to 64 slots.
    let one = Fixture { ids: |_| vec![0], values: |_| vec![5.0], ..F4 };
    both_ways(1, |comm| {
        let ht = eager(comm, Fixture { ranks: 1, ..one }, EXPERT_MAJOR, 64);
        assert_eq!(ht.published.total, 64);
        let rows = ht.receive(ht.dispatch_into(64)).rows;
        assert_eq!((rows[0], &rows[1..]), (5.0, &[0.0; 63][..]));
        assert_eq!(ht.combine(&rows), [5.0]);
    });
}

/// EP vector O10.
#[test]
fn ranks_may_receive_nothing() {
    both_ways(4, |comm| {
        let ht = eager(comm, ALL_TO_0, EXPERT_MAJOR, 0);
        let total = ht.published.total as usize;
        assert_eq!(total, [16, 0, 0, 0][comm.rank()]);
        let received = ht.receive(ht.dispatch_into(total));
        if comm.rank() == 0 {
            let all: Vec<_> = (1..=16).map(|x| x as f32).collect();
            assert_eq!((received.rows.clone(), received.weights), (all, vec![1.0; 16]));
        }
        assert_eq!(ht.combine(&received.rows), (F4.values)(comm.rank()));
    });
}

/// EP vector O11.
#[test]
fn tokens_and_weights_are_empty_together() {
    both_ways(4, |comm| {
        let ht = eager(comm, ALL_TO_0, EXPERT_MAJOR, 0);
        let total = ht.published.total as usize;
        let mut call = ht.dispatch_into(total);
        call.out_weights = Some(TestTensor::filled(&[if total == 0 { 4 } else { 0 }], CANARY));
        assert_refused(call.call(&ht.handle), INVALID_ARGUMENT, FailureClass::Return);
    });
}

/// EP vector O12.
#[test]
fn an_eager_group_does_not_drop() {
    both_ways(2, |comm| {
        let config = ncclEpGroupConfig_t {
            max_recv_tokens_per_rank: 0,
            overflow_policy: ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP,
            ..G2.config(HIGH_THROUGHPUT, HT_HIDDEN)
        };
        let (code, _leaked) = TestGroup::try_new(comm, &config);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Throw);
    });
}
