//! EP 4.6, 4.7: outputs in windows, and the rows beyond the total there.

use nccl_ext_core::bf16;
use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;

use super::ht_expert_major::G2_ROWS;

#[test]
fn flat_windows_have_their_tables_initialised_up_to_the_budget() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, FLAT);
        let received = ht.receive(ht.dispatch_into(18).with_output_window(comm));
        let total = [4, 5][comm.rank()];
        assert!(received.rows[total..].iter().all(|&x| x == CANARY));
        assert!(received.ids[2 * total..32].iter().all(|&x| x == -1));
        assert!(received.weights[2 * total..32].iter().all(|&x| x == 0.0));
        assert!(received.ids[32..].iter().all(|&x| x == CANARY as i64));
        assert!(received.weights[32..].iter().all(|&x| x == CANARY));
    });
}

#[test]
fn dup_windows_have_their_weights_initialised_up_to_the_budget() {
    both_ways(2, |comm| {
        let ht =
            HighThroughputRank::with(comm, G2, EXPERT_MAJOR, 4, |c| c.zero_copy = ZERO_COPY_ON);
        let received = ht.receive(ht.dispatch_into(18).with_output_window(comm));
        let [a, b, c, d, e, f] = G2_ROWS[comm.rank()];
        assert_eq!(received.rows[..8], [a, b, c, 0., d, e, f, 0.]);
        assert!(received.rows[8..].iter().all(|&x| x == CANARY));
        assert!(received.weights[8..16].iter().all(|&x| x == 0.0));
        assert_eq!(received.weights[16..], [CANARY; 2]);
    });
}

#[test]
fn permute_windows_have_nothing_beyond_the_total_written() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::with(comm, G2, EXPERT_MAJOR, 4, |_| ());
        let received = ht.receive(ht.dispatch_into(18).with_output_window(comm));
        let [a, b, c, d, e, f] = G2_ROWS[comm.rank()];
        assert_eq!(received.rows[..8], [a, b, c, 0., d, e, f, 0.]);
        assert!(received.rows[8..].iter().all(|&x| x == CANARY));
        assert!(received.weights[8..].iter().all(|&x| x == CANARY));
    });
}

#[test]
fn windows_without_a_pointer_are_resolved_with_their_offset() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, FLAT);
        let canaries = TestTensor::filled(&[20, HT_HIDDEN], bf16::from_f32(CANARY));
        let mut memory = register_window(comm, canaries);
        let window = memory.raw_mut().win_hdl;
        let into_row = |row: usize, window| {
            let offset = (row * HT_HIDDEN * size_of::<bf16>()) as u64;
            let out = TestTensor::in_window(&[16, HT_HIDDEN], window, offset);
            DispatchCall { out_tokens: Some(out), ..ht.dispatch_into(16) }.call(&ht.handle)
        };
        assert_ok(into_row(4, window));
        let rows = row_values(&memory.data, HT_HIDDEN);
        let expected: [&[f32]; 2] = [&[1., 2., 3., 7.], &[1., 2., 5., 6., 8.]];
        let expected = expected[comm.rank()];
        assert_eq!(rows[..4], [CANARY; 4]);
        assert_eq!(rows[4..][..expected.len()], *expected);
        assert!(rows[4 + expected.len()..].iter().all(|&x| x == CANARY));
        // The last row would lie beyond the window.
        assert_refused(into_row(5, window), INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
        let no_window = (&raw mut memory).cast();
        assert_refused(into_row(4, no_window), INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
    });
}
