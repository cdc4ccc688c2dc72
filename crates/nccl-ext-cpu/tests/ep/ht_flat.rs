//! EP 9.2: high throughput, FLAT.

use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;

/// The first rows of a rank in F4.
fn f4_rows(rank: usize) -> [f32; 4] {
    [[1., 2., 9., 10.], [3., 4., 11., 12.], [5., 6., 13., 14.], [7., 8., 15., 16.]][rank]
}

/// EP vector B1.
#[test]
fn every_rank_receives_four_rows_of_f4() {
    let totals = both_ways(4, |comm| HighThroughputRank::new(comm, F4, FLAT).published.total);
    assert_eq!(totals, [[4; 4]; 2]);
}

/// EP vector B2.
#[test]
fn rows_arrive_in_order_of_source_and_token() {
    both_ways(4, |comm| {
        let rows = HighThroughputRank::new(comm, F4, FLAT).dispatch().rows;
        assert_eq!(rows[..4], f4_rows(comm.rank()));
    });
}

/// EP vector B3.
#[test]
fn ids_are_local_or_global_as_asked() {
    both_ways(4, |comm| {
        let ht = HighThroughputRank::new(comm, F4, FLAT);
        assert_eq!(ht.dispatch().ids[..4], [0, 1, 0, 1]);
        let global = ht.receive(ht.dispatch_into(32).with_global_ids());
        let r = 2 * comm.rank() as i64;
        assert_eq!(global.ids[..4], [r, r + 1, r, r + 1]);
    });
}

/// EP vector B4.
#[test]
fn expert_counters_count_the_tokens_of_each_expert() {
    let counters = both_ways(4, |comm| HighThroughputRank::new(comm, F4, FLAT).published.counters);
    assert_eq!(counters, [[[2, 2]; 4]; 2]);
}

/// EP vector B5.
#[test]
fn combine_gives_the_tokens_back() {
    both_ways(4, |comm| {
        let ht = HighThroughputRank::new(comm, F4, FLAT);
        let received = ht.dispatch();
        assert_eq!(ht.combine(&received.rows), (F4.values)(comm.rank()));
    });
}

/// EP vector B6.
#[test]
fn a_token_for_two_experts_of_a_rank_arrives_once() {
    both_ways(4, |comm| {
        let ht = HighThroughputRank::new(comm, F4K2, FLAT);
        let pairs = [3., 4., 7., 8., 11., 12., 15., 16.];
        let expected: [&[f32]; 4] = [&[1., 5., 9., 13.], &[2., 6., 10., 14.], &pairs, &pairs];
        let expected = expected[comm.rank()];
        assert_eq!(ht.published.total, expected.len() as i64);
        assert_eq!(ht.dispatch().rows[..expected.len()], *expected);
    });
}

/// EP vector B7.
#[test]
fn totals_count_tokens_and_not_entries() {
    let totals = both_ways(2, |comm| HighThroughputRank::new(comm, G2, FLAT).published.total);
    assert_eq!(totals, [[4, 5]; 2]);
}

/// Rows that a rank receives in G2.
fn g2_received(rank: usize) -> usize {
    [4, 5][rank]
}

/// EP vector B8.
#[test]
fn rows_are_the_tokens_that_name_a_local_expert() {
    both_ways(2, |comm| {
        let rows = HighThroughputRank::new(comm, G2, FLAT).dispatch().rows;
        let expected: [&[f32]; 2] = [&[1., 2., 3., 7.], &[1., 2., 5., 6., 8.]];
        assert_eq!(rows[..g2_received(comm.rank())], *expected[comm.rank()]);
    });
}

/// Local ids of the rows of each rank in G2.
const G2_LOCAL: [&[i64]; 2] = [&[0, -1, 1, -1, 0, 1, 0, 1], &[0, -1, 1, -1, 0, -1, 1, -1, 0, 1]];

/// EP vector B9.
#[test]
fn ids_of_a_row_ascend_and_end_in_minus_1() {
    both_ways(2, |comm| {
        let ids = HighThroughputRank::new(comm, G2, FLAT).dispatch().ids;
        assert_eq!(ids[..2 * g2_received(comm.rank())], *G2_LOCAL[comm.rank()]);
    });
}

/// EP vector B10.
#[test]
fn global_ids_ascend_too() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, FLAT);
        let ids = ht.receive(ht.dispatch_into(16).with_global_ids()).ids;
        // Rank 0 has experts 0 and 1, so that its local ids are the global ones.
        let expected = [G2_LOCAL[0], &[2, -1, 3, -1, 2, -1, 3, -1, 2, 3]][comm.rank()];
        assert_eq!(ids[..expected.len()], *expected);
    });
}

/// EP vector B11.
#[test]
fn weights_follow_their_ids() {
    both_ways(2, |comm| {
        let weights = HighThroughputRank::new(comm, G2, FLAT).dispatch().weights;
        let expected: [&[f32]; 2] = [
            &[1., 0., 2.25, 0., 3.25, 3., 7., 7.25],
            &[1.25, 0., 2., 0., 5., 0., 6., 0., 8., 8.25],
        ];
        assert_eq!(weights[..2 * g2_received(comm.rank())], *expected[comm.rank()]);
    });
}

/// EP vector B12.
#[test]
fn expert_counters_count_a_duplicate_once() {
    let counters = both_ways(2, |comm| HighThroughputRank::new(comm, G2, FLAT).published.counters);
    assert_eq!(counters, [[[3, 3]; 2]; 2]);
}

/// EP vector B13.
#[test]
fn combine_sums_over_the_ranks_that_received_a_token() {
    both_ways(2, |comm| {
        let sums = HighThroughputRank::new(comm, G2, FLAT).round_trip();
        assert_eq!(sums, [[2., 4., 3., 0.], [5., 6., 7., 8.]][comm.rank()]);
    });
}

/// EP vector B14.
#[test]
fn rows_beyond_the_total_are_untouched() {
    both_ways(2, |comm| {
        let received = HighThroughputRank::new(comm, G2, FLAT).dispatch();
        let count = g2_received(comm.rank());
        assert!(received.rows[count..].iter().all(|&x| x == CANARY));
        assert!(received.weights[2 * count..].iter().all(|&x| x == CANARY));
        assert!(received.ids[2 * count..].iter().all(|&x| x == CANARY as i64));
        assert_eq!(received.rows.len(), 16);
    });
}

/// EP vector B15.
#[test]
fn int32_ids_give_the_same() {
    both_ways(2, |comm| {
        let mut ht = HighThroughputRank::new(comm, G2, FLAT);
        let (wide, published) = (ht.dispatch(), ht.published.clone());
        let narrow: Vec<_> = (G2.ids)(comm.rank()).iter().map(|&id| id as i32).collect();
        assert_ok(ht.update(&mut TestTensor::new(&[4, 2], narrow)));
        assert_eq!(ht.published, published);
        assert_eq!(ht.dispatch(), wide);
    });
}

/// EP vector B16.
#[test]
fn an_int32_id_output_is_refused_after_communication() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, FLAT);
        let mut dispatch = ht.dispatch_into(16);
        dispatch.out_ids32 = Some(TestTensor::filled(&[16, 2], 0_i32));
        assert_refused(dispatch.call(&ht.handle), INVALID_ARGUMENT, FailureClass::Assert);
        // It has communicated: nothing arrived, and the next correct call works.
        assert!(
            row_values(&dispatch.out_tokens.unwrap().data, HT_HIDDEN).iter().all(|&x| x == CANARY)
        );
        assert_eq!(ht.dispatch().ids[..8], G2_LOCAL[comm.rank()][..8]);
    });
}

/// EP vector B21.
#[test]
fn a_smaller_update_leaves_nothing_of_the_larger_one() {
    both_ways(4, |comm| {
        let mut ht = HighThroughputRank::new(comm, F4, FLAT);
        ht.dispatch();
        ht.fixture = Fixture { values: |r| vec![r as f32 + 50.0], ..F4 };
        assert_ok(ht.update(&mut int64_ids(1, &[0])));
        assert_eq!(ht.published.total, [4, 0, 0, 0][comm.rank()]);
        let rows = ht.dispatch().rows;
        let expected = if comm.rank() == 0 { [50., 51., 52., 53.] } else { [CANARY; 4] };
        assert_eq!(rows[..4], expected);
    });
}

/// EP vector B22.
#[test]
fn four_rounds_on_one_handle() {
    both_ways(4, |comm| {
        let mut ht = HighThroughputRank::new(comm, F4, FLAT);
        for _ in 0..4 {
            assert_ok(ht.update(&mut F4.ids(comm.rank())));
            let rows = ht.dispatch().rows;
            assert_eq!(rows[..4], f4_rows(comm.rank()));
            assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
        }
    });
}

/// EP vector B24.
#[test]
fn fewer_rows_than_the_budget_are_refused() {
    both_ways(4, |comm| {
        let fixture = Fixture { max_recv: 8, ..F4 };
        let ht = HighThroughputRank::new(comm, fixture, FLAT);
        let code = ht.dispatch_into(7).call(&ht.handle);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
        // Nobody has communicated, so all can go on.
        assert_eq!(ht.dispatch().rows[..4], f4_rows(comm.rank()));
    });
}
