//! Rank-major.

use nccl_ext_core::bf16;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;

/// EP vector L4.
#[test]
fn a_source_has_the_tokens_that_name_a_local_expert() {
    both_ways(2, |comm| {
        let received = LowLatencyRank::new(comm, G2, RANK_MAJOR).dispatch();
        assert_eq!(received.counters, [[3, 1], [2, 3]][comm.rank()]);
    });
}

/// A row's value and its two ids.
type RowIds = (f32, [i32; 2]);

/// Rows by source.
fn assert_rows(received: &LowLatencyReceived, expected: [&[RowIds]; 2]) {
    let of_source = |source| {
        let tokens = received.tokens_of(source, 2).into_iter();
        tokens.map(|(value, ids, _)| (value, [ids[0], ids[1]])).collect::<Vec<_>>()
    };
    assert_eq!([0, 1].map(of_source), expected);
}

/// Rank 0 has experts 0 and 1, so that its local ids are the global ones.
const G2_ROWS_OF_RANK_0: [&[RowIds]; 2] =
    [&[(1., [0, -1]), (2., [-1, 1]), (3., [1, 0])], &[(7., [0, 1])]];

/// EP vector L5.
#[test]
fn rows_carry_local_ids() {
    let of_rank_1: [&[RowIds]; 2] =
        [&[(1., [-1, 0]), (2., [1, -1])], &[(5., [0, -1]), (6., [1, 1]), (8., [0, 1])]];
    both_ways(2, |comm| {
        let received = LowLatencyRank::new(comm, G2, RANK_MAJOR).dispatch();
        assert_rows(&received, [G2_ROWS_OF_RANK_0, of_rank_1][comm.rank()]);
    });
}

/// EP vector L6.
#[test]
fn rows_carry_global_ids_when_asked() {
    let of_rank_1: [&[RowIds]; 2] =
        [&[(1., [-1, 2]), (2., [3, -1])], &[(5., [2, -1]), (6., [3, 3]), (8., [2, 3])]];
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, RANK_MAJOR);
        let received = ll.receive(ll.dispatch_call(LL_HIDDEN).with_global_ids());
        assert_rows(&received, [G2_ROWS_OF_RANK_0, of_rank_1][comm.rank()]);
    });
}

/// EP vector L7.
#[test]
fn rows_carry_all_weights_of_their_source() {
    both_ways(2, |comm| {
        let received = LowLatencyRank::new(comm, G2, RANK_MAJOR).dispatch();
        let tokens = [0, 1].map(|source| received.tokens_of(source, 2)).concat();
        assert_eq!(tokens.len(), [4, 5][comm.rank()]);
        for (value, _, weights) in tokens {
            assert_eq!(weights, [value, value + 0.25]);
        }
    });
}

/// EP vector L8.
#[test]
fn dead_rows_have_no_ids_and_are_untouched_otherwise() {
    both_ways(2, |comm| {
        let received = LowLatencyRank::new(comm, G2, RANK_MAJOR).dispatch();
        assert_eq!(received.dead().count(), 8 - [4, 5][comm.rank()]);
        for (row, value) in received.dead() {
            assert_eq!(value, CANARY);
            assert_eq!(received.ids[2 * row..2 * row + 2], [-1, -1]);
            assert_eq!(received.weights[2 * row..2 * row + 2], [CANARY; 2]);
        }
    });
}

/// EP vector L9.
#[test]
fn combine_sums_over_the_ranks_of_a_token() {
    both_ways(2, |comm| {
        let sums = LowLatencyRank::new(comm, G2, RANK_MAJOR).round_trip();
        assert_eq!(sums, [[2., 4., 3., 0.], [5., 6., 7., 8.]][comm.rank()]);
    });
}

/// EP vector L10.
#[test]
fn without_tokens_every_id_is_minus_1() {
    let empty = Fixture { ids: |_| vec![], values: |_| vec![], ..G2 };
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, empty, RANK_MAJOR);
        let received = ll.dispatch();
        assert_eq!(received.counters, [0, 0]);
        assert!(received.ids.iter().all(|&id| id == -1));
        assert!(received.rows.iter().all(|&row| row == CANARY));
        assert_eq!(ll.combine(&received.rows), []);
    });
}

/// Each source sends `k = 0` to itself and `k = 1` to the next of four ranks.
const RING: Fixture = Fixture {
    ranks: 4,
    experts: 8,
    max_tokens: 1,
    topk: 2,
    ids: |r| vec![2 * r as i64, (2 * r as i64 + 3) % 8],
    values: |r| vec![r as f32 + 1.0],
    ..G2
};

/// Local ids by source: its own first entry, and the second of the rank before.
fn ring_ids(rank: usize) -> [[i32; 2]; 4] {
    let mut ids = [[-1, -1]; 4];
    ids[rank] = [0, -1];
    ids[(rank + 3) % 4] = [-1, 1];
    ids
}

/// EP vector L11.
#[test]
fn a_ring_of_four_ranks() {
    both_ways(4, |comm| {
        let ll = LowLatencyRank::new(comm, RING, RANK_MAJOR);
        let received = ll.dispatch();
        let ids = ring_ids(comm.rank());
        assert_eq!(received.ids, ids.as_flattened());
        let counts = ids.map(|row| i32::from(row != [-1, -1]));
        assert_eq!(received.counters, counts);
    });
}

/// EP vector L12.
#[test]
fn source_counters_are_optional() {
    both_ways(4, |comm| {
        let ll = LowLatencyRank::new(comm, RING, RANK_MAJOR);
        for no_info in [false, true] {
            let mut call = ll.dispatch_call(LL_HIDDEN);
            call.src_counters = None;
            call.no_info = no_info;
            assert_ok(call.call(&ll.handle));
            assert_eq!(call.out_ids32.unwrap().data, ring_ids(comm.rank()).as_flattened());
        }
    });
}

/// EP vector L19.
#[test]
fn the_sum_is_rounded_to_even() {
    let both = Fixture { ids: |_| vec![0, 2], values: |_| vec![1.0], max_tokens: 1, ..G2 };
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, both, RANK_MAJOR);
        ll.dispatch();
        let value = [256.0, 1.0][comm.rank()];
        assert_eq!(ll.combine(&[value; 2]), [256.0]);
    });
}

/// EP 4.4.3.
#[test]
fn nan_becomes_canonical() {
    let one = Fixture { ids: |_| vec![0, -1], values: |_| vec![1.0], max_tokens: 1, ..G2 };
    both_ways(2, |comm| {
        let ll = LowLatencyRank::new(comm, one, RANK_MAJOR);
        ll.dispatch();
        let mut call = ll.combine_call(&[0.0; 2], LL_HIDDEN);
        call.tokens.as_mut().unwrap().data.fill(bf16::from_bits(0xFF81));
        assert_ok(call.call(&ll.handle));
        assert!(call.out.unwrap().data.iter().all(|x| x.to_bits() == 0x7FFF));
    });
}
