//! EP 9.6: low latency.

#![allow(clippy::unwrap_used, clippy::panic)]

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

/// One expert a token, and two, with weights that give the token back.
const SINGLE: Fixture =
    Fixture { topk: 1, ids: |r| vec![3 - r as i64, 0, 2, 1], weight: |_, _| 1.0, ..G2 };
const DOUBLE: Fixture =
    Fixture { ids: |r| vec![0, 2, 1, 3 - r as i64, 3, 0, 2, 1], weight: |_, _| 0.5, ..G2 };

fn send_only(call: &mut Dispatch) {
    let mut config = nccl_ep_sys::ncclEpDispatchConfig_t::default();
    (config.size, config.magic, config.send_only) = (24, nccl_ep_sys::NCCL_EP_MAGIC, 1);
    call.config = Some(config);
}

fn send_only_combine(call: &mut Combine) {
    let mut config = nccl_ep_sys::ncclEpCombineConfig_t::default();
    (config.size, config.magic, config.send_only) = (20, nccl_ep_sys::NCCL_EP_MAGIC, 1);
    call.config = Some(config);
}

fn complete(handle: &Handle) -> nccl_ext_core::raw::ncclResult_t {
    let (config, stream) = (std::ptr::null(), std::ptr::null_mut());
    // SAFETY: the handle is live; no configuration and the null stream.
    unsafe { (api().ncclEpComplete)(handle.raw, config, stream) }
}

/// A round in which each half is staged or not, as `staged` says of dispatch and combine.
fn round(ll: &Ll, staged: [bool; 2]) -> (LlReceived, Vec<f32>) {
    let mut call = ll.dispatch_call(WIDE);
    if staged[0] {
        send_only(&mut call);
        ok(call.call(&ll.handle));
        // The outputs' rows keep their bytes until the completion, whatever the peers do.
        assert!(values(&call.out_tokens.as_ref().unwrap().data, WIDE).iter().all(|&x| x == CANARY));
        // The input is free already.
        call.tokens.as_mut().unwrap().data.fill(bf16::from_f32(-1.0));
        if let Some(weights) = &mut call.weights {
            weights.data.fill(-1.0);
        }
        ok(complete(&ll.handle));
    } else {
        ok(call.call(&ll.handle));
    }
    let received = ll.received(call);
    let mut call = ll.combine_call(&received.rows, WIDE);
    if staged[1] {
        send_only_combine(&mut call);
        ok(call.call(&ll.handle));
        assert!(values(&call.out.as_ref().unwrap().data, WIDE).iter().all(|&x| x == CANARY));
        call.tokens.as_mut().unwrap().data.fill(bf16::from_f32(-1.0));
        ok(complete(&ll.handle));
    } else {
        ok(call.call(&ll.handle));
    }
    (received, values(&call.out.unwrap().data, WIDE))
}

#[test]
fn l13_two_handles_interleaved_staged_and_not() {
    ranks(2, |comm| {
        let group = std::rc::Rc::new(Group::new(comm, &G2.config(LL, WIDE)));
        let handles = [SINGLE, DOUBLE].map(|f| Ll::on(group.clone(), comm.rank(), f, EM));
        let counts = [[[2, 2], [2, 2]], [[4, 4], [4, 4]]];
        for staged in [[false; 2], [true; 2], [false, true], [true, false]] {
            for (ll, counts) in handles.iter().zip(counts) {
                let (received, combined) = round(ll, staged);
                assert_eq!(received.counters.iter().sum::<i32>(), counts[comm.rank()].iter().sum());
                assert_eq!(combined, (G2.values)(comm.rank()));
            }
        }
        let [single, double] = &handles;
        let rows = [single.dispatch().rows, double.dispatch().rows];
        assert_eq!(double.combine(&rows[1]), (G2.values)(comm.rank()));
        assert_eq!(single.combine(&rows[0]), (G2.values)(comm.rank()));
    });
}

#[test]
fn l13_two_handles_rank_major() {
    ranks(2, |comm| {
        let group = std::rc::Rc::new(Group::new(comm, &G2.config(LL, WIDE)));
        let handles = [SINGLE, DOUBLE].map(|f| Ll::on(group.clone(), comm.rank(), f, RM));
        let values = (G2.values)(comm.rank());
        // Weighting is the caller's job: a token that two ranks have comes back twice.
        let scaled = |rows: &[f32], by: f32| rows.iter().map(|x| x * by).collect::<Vec<_>>();
        for staged in [[false; 2], [true; 2], [false, true], [true, false]] {
            for (ll, (count, copies)) in handles.iter().zip([(2, 1.), (4, 2.)]) {
                let (received, combined) = round(ll, staged);
                assert_eq!(received.counters, [count; 2]);
                assert_eq!(combined, scaled(&values, copies));
            }
        }
        let [single, double] = &handles;
        let rows = [single.dispatch().rows, double.dispatch().rows];
        assert_eq!(double.combine(&scaled(&rows[1], 0.5)), values);
        assert_eq!(single.combine(&rows[0]), values);
    });
}

#[test]
fn l13_staged_rounds_equal_full_ones() {
    ranks(2, |comm| {
        for layout in [EM, RM] {
            let ll = Ll::new(comm, G2, layout);
            let full = round(&ll, [false; 2]);
            for _ in 0..3 {
                assert_eq!(round(&ll, [true; 2]), full);
            }
        }
    });
}

#[test]
fn l13_one_rank_stages_and_the_other_does_not() {
    ranks(2, |comm| {
        for layout in [EM, RM] {
            let ll = Ll::new(comm, G2, layout);
            let full = round(&ll, [false; 2]);
            for turn in 0..6 {
                assert_eq!(round(&ll, [turn % 2 == comm.rank(), turn % 3 == comm.rank()]), full);
            }
        }
    });
}

#[test]
fn l13_a_full_operation_does_not_wait_for_a_staged_peers_completion() {
    let barrier = std::sync::Barrier::new(2);
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, RM);
        let full = ll.dispatch();
        let mut call = ll.dispatch_call(WIDE);
        if comm.rank() == 0 {
            send_only(&mut call);
            ok(call.call(&ll.handle));
            // Rank 1 is through its dispatch and has overwritten its tokens.
            barrier.wait();
            ok(complete(&ll.handle));
        } else {
            ok(call.call(&ll.handle));
            call.tokens.as_mut().unwrap().data.fill(bf16::from_f32(-1.0));
            barrier.wait();
        }
        assert_eq!(ll.received(call), full);
    });
}

#[test]
fn l13_a_completion_never_reads_what_a_full_peer_has_taken_back() {
    // Rank 1 sends all it can to rank 0 and overwrites it, last token first, as soon as its call
    // returns; rank 0 has staged nothing and is still copying then if nobody keeps it from that.
    const LONG: usize = 8192;
    const MOST: usize = 64;
    let one_way = Fixture {
        max_tokens: MOST,
        ids: |r| if r == 1 { [0, 1].repeat(MOST) } else { vec![] },
        values: |r| (0..if r == 1 { MOST } else { 0 }).map(|t| t as f32).collect(),
        ..G2
    };
    ranks(2, |comm| {
        let config = one_way.config(LL, LONG);
        let ll = Ll::on(Group::new(comm, &config).into(), comm.rank(), one_way, RM);
        for _ in 0..20 {
            let mut call = ll.dispatch_call(LONG);
            if comm.rank() == 0 {
                send_only(&mut call);
                ok(call.call(&ll.handle));
                ok(complete(&ll.handle));
                let rows = values(&call.out_tokens.unwrap().data, LONG);
                assert_eq!(rows[MOST..], (one_way.values)(1));
            } else {
                ok(call.call(&ll.handle));
                let data = &mut call.tokens.as_mut().unwrap().data;
                data.iter_mut().rev().for_each(|x| *x = bf16::from_f32(-1.0));
            }
        }
    });
}

#[test]
fn l13_nothing_else_between_a_staged_send_and_its_completion() {
    ranks(2, |comm| {
        let group = std::rc::Rc::new(Group::new(comm, &G2.config(LL, WIDE)));
        let ll = Ll::on(group.clone(), comm.rank(), G2, EM);
        let other = Ll::on(group, comm.rank(), SINGLE, EM);
        ll.dispatch();
        let mut call = ll.dispatch_call(WIDE);
        send_only(&mut call);
        ok(call.call(&ll.handle));
        refused(other.dispatch_call(WIDE).call(&other.handle), USAGE, FailureClass::Trap);
        let mut again = ll.dispatch_call(WIDE);
        send_only(&mut again);
        refused(again.call(&ll.handle), USAGE, FailureClass::Trap);
        ok(complete(&other.handle));
        ok(complete(&ll.handle));
        assert_eq!(ll.received(call).counters, [[3, 3], [3, 4]][comm.rank()]);
        other.dispatch();
    });
}

#[test]
fn l13_the_communicator_is_free_while_a_send_is_staged() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, EM);
        let mut call = ll.dispatch_call(WIDE);
        send_only(&mut call);
        ok(call.call(&ll.handle));
        let mut sum = [0_i32];
        let (one, stream) = ([1_i32], nccl_ext_core::Stream::DEFAULT);
        comm.all_reduce(&one, &mut sum, nccl_ext_core::Reduction::Sum, stream).unwrap();
        assert_eq!(sum, [2]);
        ok(complete(&ll.handle));
        assert_eq!(ll.received(call).counters, [[3, 3], [3, 4]][comm.rank()]);
    });
}
