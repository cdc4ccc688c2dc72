//! Rows that cannot be compiled, and what works only just.

use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

/// EP vector L16.
#[test]
fn rows_of_128_bf16_do_not_compile() {
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, EXPERT_MAJOR);
        for _ in 0..2 {
            let code = ll.dispatch_call(128).call(&ll.handle);
            assert_refused(code, INTERNAL_ERROR, FailureClass::Return);
        }
    });
}

/// EP vector L17.
#[test]
fn rows_of_256_bf16_dispatch_but_do_not_combine() {
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, EXPERT_MAJOR);
        let mut call = ll.dispatch_call(256);
        assert_ok(call.call(&ll.handle));
        let rows = row_values(&call.out_tokens.unwrap().data, 256);
        let code = ll.combine_call(&rows, 256).call(&ll.handle);
        assert_refused(code, INTERNAL_ERROR, FailureClass::Return);
        // A combine need not have the width of its dispatch (EP vector L3).
        let expected = [[2.25, 8.5, 18.75, 0.], [25., 73.5, 100., 130.]];
        assert_eq!(ll.combine(&rows), expected[comm.rank()]);
    });
}

/// EP vector L18.
#[test]
fn one_expert_traps() {
    let one =
        Fixture { ranks: 1, experts: 1, topk: 1, ids: |_| vec![0], values: |_| vec![1.0], ..G2 };
    both_ways(1, |comm| {
        let ll = LowLatencyRank::new(comm, one, EXPERT_MAJOR);
        let code = ll.dispatch_call(LL_HIDDEN).call(&ll.handle);
        assert_refused(code, INVALID_USAGE, FailureClass::Trap);
    });
}

/// EP 4.4.5.
#[test]
fn one_dispatch_can_be_combined_again() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        both_ways(2, |comm| {
            let ll = LowLatencyRank::new(comm, G2, layout);
            let rows = ll.dispatch().rows;
            let once = ll.combine(&rows);
            let doubled: Vec<_> = rows.iter().map(|x| 2.0 * x).collect();
            let twice: Vec<_> = once.iter().map(|x| 2.0 * x).collect();
            assert_eq!(ll.combine(&doubled), twice);
            assert_eq!(ll.combine(&rows), once);
        });
    });
}
