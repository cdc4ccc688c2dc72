//! EP 9.2: high throughput, FLAT.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use nccl_ep_sys::*;
use nccl_ext_core::{Element, bf16, f16};
use nccl_ext_cpu::FailureClass;

fn f4_rows(rank: usize) -> [f32; 4] {
    [[1., 2., 9., 10.], [3., 4., 11., 12.], [5., 6., 13., 14.], [7., 8., 15., 16.]][rank]
}

#[test]
fn b01_f4_totals() {
    let totals = ranks(4, |comm| Ht::new(comm, F4, FLAT).published.total);
    assert_eq!(totals, [4; 4]);
}

#[test]
fn b02_f4_rows_in_order_of_source_and_token() {
    ranks(4, |comm| {
        let rows = Ht::new(comm, F4, FLAT).dispatch().rows;
        assert_eq!(rows[..4], f4_rows(comm.rank()));
    });
}

#[test]
fn b03_f4_indices_local_and_global() {
    ranks(4, |comm| {
        let ht = Ht::new(comm, F4, FLAT);
        assert_eq!(ht.dispatch().ids[..4], [0, 1, 0, 1]);
        let mut global = ht.dispatch_into(32);
        global.global = true;
        ok(global.call(&ht.handle));
        let r = 2 * comm.rank() as i64;
        assert_eq!(Received::of(global).ids[..4], [r, r + 1, r, r + 1]);
    });
}

#[test]
fn b04_f4_expert_counters() {
    let counters = ranks(4, |comm| Ht::new(comm, F4, FLAT).published.counters);
    assert_eq!(counters, [[2, 2]; 4]);
}

#[test]
fn b05_f4_combine_gives_the_tokens_back() {
    ranks(4, |comm| {
        let ht = Ht::new(comm, F4, FLAT);
        let received = ht.dispatch();
        assert_eq!(ht.combine(&received.rows), (F4.values)(comm.rank()));
    });
}

#[test]
fn b06_f4k2_totals_without_duplication() {
    let totals = ranks(4, |comm| Ht::new(comm, F4K2, FLAT).published.total);
    assert_eq!(totals, [4, 4, 8, 8]);
}

#[test]
fn b07_g2_totals() {
    let totals = ranks(2, |comm| Ht::new(comm, G2, FLAT).published.total);
    assert_eq!(totals, [4, 5]);
}

/// Rows of a rank's G2 table, by rank.
fn g2_received(rank: usize) -> usize {
    [4, 5][rank]
}

#[test]
fn b08_g2_rows() {
    ranks(2, |comm| {
        let rows = Ht::new(comm, G2, FLAT).dispatch().rows;
        let expected: [&[f32]; 2] = [&[1., 2., 3., 7.], &[1., 2., 5., 6., 8.]];
        assert_eq!(rows[..g2_received(comm.rank())], *expected[comm.rank()]);
    });
}

const G2_LOCAL: [&[i64]; 2] = [&[0, -1, 1, -1, 0, 1, 0, 1], &[0, -1, 1, -1, 0, -1, 1, -1, 0, 1]];

#[test]
fn b09_g2_local_indices() {
    ranks(2, |comm| {
        let ids = Ht::new(comm, G2, FLAT).dispatch().ids;
        assert_eq!(ids[..2 * g2_received(comm.rank())], *G2_LOCAL[comm.rank()]);
    });
}

#[test]
fn b10_g2_global_indices_of_rank_1() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let mut dispatch = ht.dispatch_into(16);
        dispatch.global = true;
        ok(dispatch.call(&ht.handle));
        if comm.rank() == 1 {
            assert_eq!(Received::of(dispatch).ids[..10], [2, -1, 3, -1, 2, -1, 3, -1, 2, 3]);
        }
    });
}

#[test]
fn b11_g2_weights() {
    ranks(2, |comm| {
        let weights = Ht::new(comm, G2, FLAT).dispatch().weights;
        let expected: [&[f32]; 2] = [
            &[1., 0., 2.25, 0., 3.25, 3., 7., 7.25],
            &[1.25, 0., 2., 0., 5., 0., 6., 0., 8., 8.25],
        ];
        assert_eq!(weights[..2 * g2_received(comm.rank())], *expected[comm.rank()]);
    });
}

#[test]
fn b12_g2_expert_counters() {
    let counters = ranks(2, |comm| Ht::new(comm, G2, FLAT).published.counters);
    assert_eq!(counters, [[3, 3]; 2]);
}

#[test]
fn b13_g2_combine() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let rows = ht.dispatch().rows;
        let expected = [[2., 4., 3., 0.], [5., 6., 7., 8.]];
        assert_eq!(ht.combine(&rows), expected[comm.rank()]);
    });
}

#[test]
fn b14_rows_beyond_the_total_are_untouched() {
    ranks(2, |comm| {
        let received = Ht::new(comm, G2, FLAT).dispatch();
        let count = g2_received(comm.rank());
        assert!(received.rows[count..].iter().all(|&x| x == CANARY));
        assert!(received.weights[2 * count..].iter().all(|&x| x == CANARY));
        assert!(received.ids[2 * count..].iter().all(|&x| x == CANARY as i64));
        assert_eq!(received.rows.len(), 16);
    });
}

#[test]
fn b15_int32_ids_give_the_same() {
    ranks(2, |comm| {
        let mut ht = Ht::new(comm, G2, FLAT);
        let (wide, published) = (ht.dispatch(), ht.published.clone());
        let narrow: Vec<_> = (G2.ids)(comm.rank()).iter().map(|&id| id as i32).collect();
        ok(ht.update(&mut Ten::new(&[4, 2], narrow)));
        assert_eq!(ht.published, published);
        assert_eq!(ht.dispatch(), wide);
    });
}

#[test]
fn b16_int32_index_output() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let mut dispatch = ht.dispatch_into(16);
        dispatch.out_ids32 = Some(Ten::filled(&[16, 2], 0_i32));
        refused(dispatch.call(&ht.handle), ARGUMENT, FailureClass::Assert);
        // It has communicated: nothing arrived, and the next correct call works.
        assert!(values(&dispatch.out_tokens.unwrap().data, H).iter().all(|&x| x == CANARY));
        assert_eq!(ht.dispatch().ids[..8], G2_LOCAL[comm.rank()][..8]);
    });
}

/// One token of rank 0 goes to every rank, which give `rows` back; its sum.
fn sum_of<T: Element>(rows: &[T]) -> T {
    let fixture = Fixture {
        ranks: rows.len(),
        experts: 4 * rows.len(),
        topk: rows.len(),
        max_recv: 16,
        ids: |_| vec![],
        values: |_| vec![],
        ..F4
    };
    let sums = ranks(rows.len(), |comm| {
        let mut ht = Ht::fresh(comm, fixture, FLAT, 0, |c| c.max_token_bytes = 64);
        let tokens = usize::from(comm.rank() == 0);
        let to: Vec<_> = (0..rows.len() as i64).map(|rank| 4 * rank).collect();
        let to = if tokens == 1 { to } else { vec![] };
        ok(ht.update(&mut Ten::new(&[tokens, rows.len()], to)));
        assert_eq!(ht.published.total, 1);
        let mut input = Ten::filled(&[1, H], rows[comm.rank()]);
        let mut output = Ten::filled(&[tokens, H], T::default());
        let mut inputs = ncclEpCombineInputs_t::init();
        inputs.tokens = input.d();
        let mut outputs = ncclEpCombineOutputs_t::init();
        outputs.tokens = output.d();
        let call = api().ncclEpCombine;
        let (config, stream) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: the handle is live; the structs and their tensors are this frame's.
        ok(unsafe { call(ht.handle.raw, &inputs, &outputs, config, stream) });
        output.data.first().copied()
    });
    sums[0].unwrap()
}

#[test]
fn b17_three_contributions_are_rounded_once() {
    assert_eq!(sum_of(&[256.0, 1.0, 1.0].map(bf16::from_f32)), bf16::from_f32(258.0));
}

#[test]
fn b18_a_tie_goes_to_even() {
    assert_eq!(sum_of(&[256.0, 1.0].map(bf16::from_f32)), bf16::from_f32(256.0));
}

#[test]
fn b19_fp16_overflows_to_infinity() {
    assert_eq!(sum_of(&[f16::from_f32(65504.0); 2]), f16::INFINITY);
}

#[test]
fn b20_minus_zero_becomes_zero() {
    assert_eq!(sum_of(&[bf16::NEG_ZERO]).to_bits(), 0);
    assert_eq!(sum_of(&[-0.0_f32]).to_bits(), 0);
}

#[test]
fn b20_nan_is_canonical() {
    assert_eq!(sum_of(&[bf16::from_bits(0xFFC1), bf16::ONE]).to_bits(), 0x7FFF);
    assert_eq!(sum_of(&[f32::INFINITY, f32::NEG_INFINITY]).to_bits(), 0x7FFF_FFFF);
}

#[test]
fn b21_a_smaller_update_leaves_nothing_of_the_larger_one() {
    ranks(4, |comm| {
        let mut ht = Ht::new(comm, F4, FLAT);
        ht.dispatch();
        ht.fixture = Fixture { values: |r| vec![r as f32 + 50.0], ..F4 };
        ok(ht.update(&mut ids(1, &[0])));
        assert_eq!(ht.published.total, [4, 0, 0, 0][comm.rank()]);
        let rows = ht.dispatch().rows;
        let expected = if comm.rank() == 0 { [50., 51., 52., 53.] } else { [CANARY; 4] };
        assert_eq!(rows[..4], expected);
    });
}

#[test]
fn b22_four_rounds_on_one_handle() {
    ranks(4, |comm| {
        let mut ht = Ht::new(comm, F4, FLAT);
        for _ in 0..4 {
            ok(ht.update(&mut F4.ids(comm.rank())));
            let rows = ht.dispatch().rows;
            assert_eq!(rows[..4], f4_rows(comm.rank()));
            assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
        }
    });
}

#[test]
fn b23_caller_owned_handle_memory() {
    ranks(4, |comm| {
        let group = Group::new(comm, &F4.config(HT, H));
        let mut bytes = 0;
        let size = api().ncclEpHandleMemSize;
        // SAFETY: the group is live, and `bytes` can be written.
        ok(unsafe { size(group.raw, FLAT, std::ptr::null(), &mut bytes, 1) });
        assert!(bytes > 0);
        let mut memory = Ten::filled(&[bytes], 0_u8);
        let mut raw = std::ptr::null_mut();
        let init = api().ncclEpInitHandle;
        // SAFETY: the group is live, and the memory outlives the handle.
        ok(unsafe { init(&mut raw, group.raw, FLAT, std::ptr::null(), 1, memory.d()) });
        let handle = Handle { raw, layout: FLAT, topk: 1 };
        let published = Published { counters: vec![], offsets: vec![], total: 0 };
        let mut ht = Ht { fixture: F4, rank: comm.rank(), handle, group, published };
        ok(ht.update(&mut F4.ids(comm.rank())));
        let rows = ht.dispatch().rows;
        assert_eq!(rows[..4], f4_rows(comm.rank()));
        assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
        drop(ht);
        memory.data.fill(1);
    });
}

#[test]
fn b23_handle_memory_that_is_too_small() {
    ranks(1, |comm| {
        let fixture = Fixture { ranks: 1, ..F4 };
        let group = Group::new(comm, &fixture.config(HT, H));
        let mut bytes = 0;
        let size = api().ncclEpHandleMemSize;
        // SAFETY: the group is live, and `bytes` can be written.
        ok(unsafe { size(group.raw, FLAT, std::ptr::null(), &mut bytes, 1) });
        let mut memory = Ten::filled(&[bytes - 1], 0_u8);
        let mut raw = std::ptr::null_mut();
        let init = api().ncclEpInitHandle;
        // SAFETY: the group is live, and memory that is too small is refused by its size.
        let code = unsafe { init(&mut raw, group.raw, FLAT, std::ptr::null(), 1, memory.d()) };
        refused(code, ARGUMENT, FailureClass::Assert);
        // SAFETY: the handle is the refused call's, and this is its only use.
        ok(unsafe { (api().ncclEpHandleDestroy)(raw) });
    });
}

#[test]
fn b24_fewer_rows_than_the_budget() {
    ranks(4, |comm| {
        let fixture = Fixture { max_recv: 8, ..F4 };
        let ht = Ht::new(comm, fixture, FLAT);
        let code = ht.dispatch_into(7).call(&ht.handle);
        refused(code, ARGUMENT, FailureClass::Return);
        // Nobody has communicated, so all can go on.
        assert_eq!(ht.dispatch().rows[..4], f4_rows(comm.rank()));
    });
}
