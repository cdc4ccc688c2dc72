//! EP 9.6: low latency.

mod common;

use common::*;
use nccl_ext_core::bf16;
use nccl_ext_cpu::FailureClass;

#[test]
fn l01_g2_expert_major_counters_and_rows() {
    ranks(2, |comm| {
        let received = Ll::new(comm, G2, EM).dispatch();
        let (counters, sets): ([i32; 2], [&[f32]; 2]) = match comm.rank() {
            0 => ([3, 3], [&[1., 3., 7.], &[2., 3., 7.]]),
            _ => ([3, 4], [&[1., 5., 8.], &[2., 6., 6., 8.]]),
        };
        assert_eq!(received.counters, counters);
        // This backend's order is that of source and token, which ascends here.
        assert_eq!([received.rows_of(0), received.rows_of(1)], sets);
    });
}

#[test]
fn l02_expert_major_rows_beyond_the_counters_are_untouched() {
    ranks(2, |comm| {
        let received = Ll::new(comm, G2, EM).dispatch();
        assert_eq!(received.dead().count(), 16 - received.counters.iter().sum::<i32>() as usize);
        assert!(received.dead().all(|(_, value)| value == CANARY));
    });
}

#[test]
fn l03_g2_expert_major_combine_applies_the_weights() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, EM);
        let rows = ll.dispatch().rows;
        let expected = [[2.25, 8.5, 18.75, 0.], [25., 73.5, 100., 130.]];
        assert_eq!(ll.combine(&rows), expected[comm.rank()]);
    });
}

#[test]
fn l04_g2_rank_major_source_counts() {
    ranks(2, |comm| {
        let received = Ll::new(comm, G2, RM).dispatch();
        assert_eq!(received.counters, [[3, 1], [2, 3]][comm.rank()]);
    });
}

type Token = (f32, [i32; 2]);

fn check_tokens(received: &LlReceived, expected: [&[Token]; 2]) {
    for (source, expected) in expected.into_iter().enumerate() {
        let tokens = received.tokens_of(source, 2);
        let tokens: Vec<_> = tokens.iter().map(|(v, ids, _)| (*v, [ids[0], ids[1]])).collect();
        assert_eq!(tokens, expected);
    }
}

#[test]
fn l05_g2_rank_major_rows() {
    ranks(2, |comm| {
        let received = Ll::new(comm, G2, RM).dispatch();
        check_tokens(
            &received,
            match comm.rank() {
                0 => [&[(1., [0, -1]), (2., [-1, 1]), (3., [1, 0])], &[(7., [0, 1])]],
                _ => {
                    [&[(1., [-1, 0]), (2., [1, -1])], &[(5., [0, -1]), (6., [1, 1]), (8., [0, 1])]]
                }
            },
        );
    });
}

#[test]
fn l06_g2_rank_major_global_ids() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, RM);
        let mut call = ll.dispatch_call(WIDE);
        call.global = true;
        ok(call.call(&ll.handle));
        check_tokens(
            &ll.received(call),
            match comm.rank() {
                0 => [&[(1., [0, -1]), (2., [-1, 1]), (3., [1, 0])], &[(7., [0, 1])]],
                _ => {
                    [&[(1., [-1, 2]), (2., [3, -1])], &[(5., [2, -1]), (6., [3, 3]), (8., [2, 3])]]
                }
            },
        );
    });
}

#[test]
fn l07_rank_major_rows_carry_all_source_weights() {
    ranks(2, |comm| {
        let received = Ll::new(comm, G2, RM).dispatch();
        for source in 0..2 {
            for (value, _, weights) in received.tokens_of(source, 2) {
                assert_eq!(weights, [value, value + 0.25]);
            }
        }
    });
}

#[test]
fn l08_rank_major_dead_rows() {
    ranks(2, |comm| {
        let received = Ll::new(comm, G2, RM).dispatch();
        for (row, value) in received.dead() {
            assert_eq!(value, CANARY);
            assert_eq!(received.ids[2 * row..2 * row + 2], [-1, -1]);
            assert_eq!(received.weights[2 * row..2 * row + 2], [CANARY; 2]);
        }
    });
}

#[test]
fn l09_g2_rank_major_combine() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, RM);
        let rows = ll.dispatch().rows;
        let expected = [[2., 4., 3., 0.], [5., 6., 7., 8.]];
        assert_eq!(ll.combine(&rows), expected[comm.rank()]);
    });
}

#[test]
fn l10_rank_major_without_tokens() {
    let empty = Fixture { ids: |_| vec![], values: |_| vec![], ..G2 };
    ranks(2, |comm| {
        let ll = Ll::new(comm, empty, RM);
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

fn ring_ids(rank: usize) -> [[i32; 2]; 4] {
    let mut ids = [[-1, -1]; 4];
    ids[rank] = [0, -1];
    ids[(rank + 3) % 4] = [-1, 1];
    ids
}

#[test]
fn l11_ring() {
    ranks(4, |comm| {
        let ll = Ll::new(comm, RING, RM);
        let received = ll.dispatch();
        let ids = ring_ids(comm.rank());
        assert_eq!(received.ids, ids.as_flattened());
        let counts = ids.map(|row| i32::from(row != [-1, -1]));
        assert_eq!(received.counters, counts);
    });
}

#[test]
fn l12_rank_major_without_source_counters() {
    ranks(4, |comm| {
        let ll = Ll::new(comm, RING, RM);
        for no_info in [false, true] {
            let mut call = ll.dispatch_call(WIDE);
            call.src_counters = None;
            call.no_info = no_info;
            ok(call.call(&ll.handle));
            assert_eq!(call.out_ids32.unwrap().data, ring_ids(comm.rank()).as_flattened());
        }
    });
}

#[test]
fn l14_expert_major_combine_without_weights() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, EM);
        let rows = ll.dispatch().rows;
        let mut call = ll.combine_call(&rows, WIDE);
        call.weights = None;
        refused(call.call(&ll.handle), ARGUMENT, FailureClass::Throw);
    });
}

#[test]
fn l15_expert_major_dispatch_without_layout_info() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, EM);
        let mut call = ll.dispatch_call(WIDE);
        call.no_info = true;
        refused(call.call(&ll.handle), ARGUMENT, FailureClass::Assert);
    });
}

#[test]
fn l16_rows_of_128_bf16_do_not_compile() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, EM);
        for _ in 0..2 {
            let code = ll.dispatch_call(128).call(&ll.handle);
            refused(code, INTERNAL, FailureClass::Return);
        }
    });
}

#[test]
fn l17_rows_of_256_bf16_dispatch_but_do_not_combine() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, EM);
        let mut call = ll.dispatch_call(256);
        ok(call.call(&ll.handle));
        let rows = values(&call.out_tokens.unwrap().data, 256);
        let code = ll.combine_call(&rows, 256).call(&ll.handle);
        refused(code, INTERNAL, FailureClass::Return);
        // A combine need not have the width of its dispatch.
        ll.combine(&rows);
    });
}

#[test]
fn l18_one_expert_traps() {
    let one =
        Fixture { ranks: 1, experts: 1, topk: 1, ids: |_| vec![0], values: |_| vec![1.0], ..G2 };
    ranks(1, |comm| {
        let ll = Ll::new(comm, one, EM);
        refused(ll.dispatch_call(WIDE).call(&ll.handle), USAGE, FailureClass::Trap);
    });
}

#[test]
fn l19_rank_major_sum_is_rounded_to_even() {
    let both = Fixture { ids: |_| vec![0, 2], values: |_| vec![1.0], max_tokens: 1, ..G2 };
    ranks(2, |comm| {
        let ll = Ll::new(comm, both, RM);
        ll.dispatch();
        let value = [256.0, 1.0][comm.rank()];
        assert_eq!(ll.combine(&[value; 2]), [256.0]);
    });
}

#[test]
fn l20_halves_give_the_token_back() {
    let halves = Fixture {
        ids: |_| vec![0, 3, 2, 1],
        values: |r| vec![r as f32 + 1.375, -3.0],
        weight: |_, _| 0.5,
        ..G2
    };
    ranks(2, |comm| {
        let ll = Ll::new(comm, halves, EM);
        let rows = ll.dispatch().rows;
        assert_eq!(ll.combine(&rows), (halves.values)(comm.rank()));
    });
}

#[test]
fn l20_a_second_combine_after_one_dispatch() {
    ranks(2, |comm| {
        for layout in [EM, RM] {
            let ll = Ll::new(comm, G2, layout);
            let rows = ll.dispatch().rows;
            let once = ll.combine(&rows);
            let doubled: Vec<_> = rows.iter().map(|x| 2.0 * x).collect();
            let twice: Vec<_> = once.iter().map(|x| 2.0 * x).collect();
            assert_eq!(ll.combine(&doubled), twice);
            assert_eq!(ll.combine(&rows), once);
        }
    });
}

#[test]
fn l20_duplicates_that_overfill_an_expert_are_refused_everywhere() {
    // Four tokens a rank, twice each to expert 0: 16 copies for 8 rows.
    let duplicates = Fixture { ids: |_| vec![0; 8], ..G2 };
    ranks(2, |comm| {
        let ll = Ll::new(comm, duplicates, EM);
        let code = ll.dispatch_call(WIDE).call(&ll.handle);
        refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
        let mut call = ll.combine_call(&[0.0; 16], WIDE);
        refused(call.call(&ll.handle), USAGE, FailureClass::UndefinedBehaviour);
    });
}

#[test]
fn l20_unweighted_nan_becomes_canonical() {
    let one = Fixture { ids: |_| vec![0, -1], values: |_| vec![1.0], max_tokens: 1, ..G2 };
    ranks(2, |comm| {
        let ll = Ll::new(comm, one, RM);
        ll.dispatch();
        let mut call = ll.combine_call(&[0.0; 2], WIDE);
        call.tokens.as_mut().unwrap().data.fill(bf16::from_bits(0xFF81));
        ok(call.call(&ll.handle));
        assert!(call.out.unwrap().data.iter().all(|x| x.to_bits() == 0x7FFF));
    });
}
