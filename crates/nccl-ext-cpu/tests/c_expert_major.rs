//! EP 9.3: high throughput, expert-major.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::ptr::{null, null_mut};

use common::*;
use nccl_ep_sys::*;
use nccl_ext_core::{Comm, bf16};
use nccl_ext_cpu::FailureClass;

fn aligned(comm: &Comm, fixture: Fixture, alignment: usize) -> Ht {
    Ht::with(comm, fixture, EM, alignment, |_| ())
}

#[test]
fn c01_f4_zones() {
    ranks(4, |comm| {
        let ht = Ht::new(comm, F4, EM);
        assert_eq!(ht.published.total, 4);
        let zones = [[1., 9., 2., 10.], [3., 11., 4., 12.], [5., 13., 6., 14.], [7., 15., 8., 16.]];
        assert_eq!(ht.dispatch().rows[..4], zones[comm.rank()]);
    });
}

#[test]
fn c02_f4_zones_with_alignment_4() {
    ranks(4, |comm| {
        let rows = aligned(comm, F4, 4).dispatch().rows;
        let r = 2.0 * comm.rank() as f32;
        assert_eq!(rows[..8], [r + 1., r + 9., 0., 0., r + 2., r + 10., 0., 0.]);
        assert!(rows[8..].iter().all(|&x| x == CANARY));
    });
}

#[test]
fn c03_f4_counters_and_offsets_with_alignment_4() {
    ranks(4, |comm| {
        let published = aligned(comm, F4, 4).published;
        assert_eq!((published.counters, published.offsets), (vec![4, 4], vec![0, 4]));
    });
}

#[test]
fn c04_f4_total_with_alignment_4() {
    let totals = ranks(4, |comm| aligned(comm, F4, 4).published.total);
    assert_eq!(totals, [8; 4]);
}

#[test]
fn c05_f4_combine_gives_the_tokens_back() {
    ranks(4, |comm| {
        for alignment in [0, 1, 4, 8] {
            let ht = aligned(comm, F4, alignment);
            let rows = ht.dispatch().rows;
            assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
        }
    });
}

#[test]
fn c06_f4k2_duplicates_for_two_experts_of_a_rank() {
    ranks(4, |comm| {
        let ht = Ht::new(comm, F4K2, EM);
        assert_eq!(ht.published.total, 8);
        let rows = ht.dispatch().rows;
        if comm.rank() < 2 {
            assert_eq!(rows[..4], rows[4..8]);
        }
    });
}

#[test]
fn c07_f4k2_with_alignment_8() {
    ranks(4, |comm| {
        let ht = aligned(comm, F4K2, 8);
        assert_eq!(ht.published.total, 16);
        assert_eq!(ht.published.counters, [8, 8]);
        assert_eq!(ht.published.offsets, [0, 8]);
        let received = ht.dispatch();
        for pad in [4..8, 12..16] {
            assert_eq!(received.rows[pad.clone()], [0.0; 4]);
            assert_eq!(received.weights[pad], [0.0; 4]);
        }
    });
}

const G2_ROWS: [[f32; 6]; 2] = [[1., 3., 7., 2., 3., 7.], [1., 5., 8., 2., 6., 8.]];

#[test]
fn c08_g2_rows_and_counters() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, EM);
        let published = Published { counters: vec![3, 3], offsets: vec![0, 3], total: 6 };
        assert_eq!(ht.published, published);
        assert_eq!(ht.dispatch().rows[..6], G2_ROWS[comm.rank()]);
    });
}

#[test]
fn c09_g2_weights() {
    ranks(2, |comm| {
        let received = Ht::new(comm, G2, EM).dispatch();
        let weights = [[1., 3.25, 7., 2.25, 3., 7.25], [1.25, 5., 8., 2., 6., 8.25]];
        assert_eq!(received.weights[..6], weights[comm.rank()]);
        assert!(received.weights[6..].iter().all(|&x| x == CANARY));
        assert!(received.rows[6..].iter().all(|&x| x == CANARY));
    });
}

#[test]
fn c10_g2_with_alignment_4() {
    ranks(2, |comm| {
        let ht = aligned(comm, G2, 4);
        let published = Published { counters: vec![4, 4], offsets: vec![0, 4], total: 8 };
        assert_eq!(ht.published, published);
        let received = ht.dispatch();
        let [a, b, c, d, e, f] = G2_ROWS[comm.rank()];
        assert_eq!(received.rows[..8], [a, b, c, 0., d, e, f, 0.]);
        assert_eq!([received.weights[3], received.weights[7]], [0.0; 2]);
    });
}

#[test]
fn c11_g2_combine() {
    ranks(2, |comm| {
        for alignment in [0, 4] {
            let ht = aligned(comm, G2, alignment);
            let rows = ht.dispatch().rows;
            let expected = [[2., 4., 6., 0.], [5., 6., 14., 16.]];
            assert_eq!(ht.combine(&rows), expected[comm.rank()]);
        }
    });
}

#[test]
fn c12_an_empty_expert_reserves_nothing() {
    // Rank 0's three experts receive 2, 0 and 1 tokens.
    let fixture = Fixture {
        experts: 12,
        ids: |r| [vec![0], vec![0], vec![2], vec![5]][r].clone(),
        values: |r| vec![r as f32 + 1.0],
        ..F4
    };
    ranks(4, |comm| {
        let ht = aligned(comm, fixture, 4);
        if comm.rank() == 0 {
            let published = Published { counters: vec![4, 0, 4], offsets: vec![0, 4, 4], total: 8 };
            assert_eq!(ht.published, published);
        }
        let rows = ht.dispatch().rows;
        if comm.rank() == 0 {
            assert_eq!(rows[..8], [1., 2., 0., 0., 3., 0., 0., 0.]);
        }
        assert_eq!(ht.combine(&rows), [comm.rank() as f32 + 1.0]);
    });
}

#[test]
fn c13_an_index_output_is_refused_after_communication() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, EM);
        let mut call = ht.dispatch_into(16);
        if comm.rank() == 0 {
            call.out_ids = Some(Ten::filled(&[16, 2], 0));
            refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
        } else {
            ok(call.call(&ht.handle));
            assert_eq!(Received::of(call).rows[..6], G2_ROWS[1]);
        }
        assert_eq!(ht.dispatch().rows[..6], G2_ROWS[comm.rank()]);
    });
}

#[test]
fn c14_alignment_of_3() {
    ranks(2, |comm| {
        let group = Group::new(comm, &G2.config(HT, H));
        let (code, handle) = group.init(EM, 2, 3);
        refused(code, ARGUMENT, FailureClass::Assert);
        assert!(handle.is_null());
        // Only expert-major looks at it.
        drop(group.handle(FLAT, 2, 3));
    });
}

/// Rank 0's token goes to experts 0, 1 (rank 0) and 2 (rank 1).
const THREE: Fixture = Fixture {
    topk: 3,
    ids: |r| if r == 0 { vec![0, 1, 2] } else { vec![] },
    values: |r| if r == 0 { vec![1.0] } else { vec![] },
    ..G2
};

/// What the experts give back: 256 and 1 on rank 0, 1 on rank 1.
fn three(rank: usize) -> Vec<f32> {
    if rank == 0 { vec![256., 1.] } else { vec![1.] }
}

#[test]
fn c15_local_permute_rounds_each_ranks_part() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, THREE, EM);
        ht.dispatch();
        let mut call = ht.combine_of(&three(comm.rank()));
        ok(call.call(&ht.handle));
        // Nothing is left in the input.
        let input = values(&call.tokens.unwrap().data, H);
        assert_eq!(input, three(comm.rank()));
        if comm.rank() == 0 {
            assert_eq!(values(&call.out.unwrap().data, H), [256.0]);
        }
    });
}

#[test]
fn c15_local_permute_leaves_its_input_alone_even_in_a_window() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, THREE, EM);
        let given: &[f32] = if comm.rank() == 0 { &[5., 7.] } else { &[13.] };
        let mut call = ht.combine_of(given);
        call.tokens = call.tokens.map(|tensor| window(comm, tensor));
        ok(call.call(&ht.handle));
        assert_eq!(values(&call.tokens.unwrap().data, H), given);
        if comm.rank() == 0 {
            assert_eq!(values(&call.out.unwrap().data, H), [25.0]);
        }
    });
}

#[test]
fn c15_the_part_is_summed_in_fp32() {
    // 256 + 1 + 1 on one rank is 258: only the sum is rounded.
    let fixture =
        Fixture { experts: 8, ids: |r| if r == 0 { vec![0, 1, 2] } else { vec![] }, ..THREE };
    ranks(2, |comm| {
        let ht = Ht::new(comm, fixture, EM);
        let sum = ht.combine(&[256., 1., 1.]);
        assert_eq!(sum, if comm.rank() == 0 { vec![258.] } else { vec![] });
    });
}

const ON: ncclEpZeroCopyMode_t = ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;

#[test]
fn c17_local_dup_leaves_sums_in_a_window() {
    ranks(2, |comm| {
        let ht = Ht::with(comm, THREE, EM, 0, |c| c.zero_copy = ON);
        let mut dispatch = ht.dispatch_into(16);
        dispatch.out_tokens = dispatch.out_tokens.map(|tensor| window(comm, tensor));
        ok(dispatch.call(&ht.handle));
        let mut call = ht.combine_of(&three(comm.rank()));
        call.tokens = call.tokens.map(|tensor| window(comm, tensor));
        ok(call.call(&ht.handle));
        let input = values(&call.tokens.unwrap().data, H);
        if comm.rank() == 0 {
            assert_eq!(values(&call.out.unwrap().data, H), [256.0]);
            assert_eq!(input, [256., 1.]);
        } else {
            assert_eq!(input, [1.]);
        }
    });
}

#[test]
fn c17_only_the_first_of_several_local_rows_changes() {
    let fixture = Fixture { values: |r| if r == 0 { vec![3.0] } else { vec![] }, ..THREE };
    ranks(2, |comm| {
        let ht = Ht::with(comm, fixture, EM, 0, |c| c.zero_copy = ON);
        let given: &[f32] = if comm.rank() == 0 { &[5., 7., 11.] } else { &[13., 17.] };
        let mut call = ht.combine_of(given);
        call.tokens = call.tokens.map(|tensor| window(comm, tensor));
        ok(call.call(&ht.handle));
        let input = values(&call.tokens.unwrap().data, H);
        if comm.rank() == 0 {
            assert_eq!(values(&call.out.unwrap().data, H), [25.0]);
            assert_eq!(input, [12., 7., 11.]);
        } else {
            assert_eq!(input, [13., 17.]);
        }
    });
}

// EP 4.6 and 4.7: rows beyond the total, when the output is a window.

#[test]
fn flat_windows_have_their_tables_initialised_up_to_the_budget() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let mut call = ht.dispatch_into(18);
        call.out_tokens = call.out_tokens.map(|tensor| window(comm, tensor));
        ok(call.call(&ht.handle));
        let received = Received::of(call);
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
    ranks(2, |comm| {
        let ht = Ht::with(comm, G2, EM, 4, |c| c.zero_copy = ON);
        let mut call = ht.dispatch_into(18);
        call.out_tokens = call.out_tokens.map(|tensor| window(comm, tensor));
        ok(call.call(&ht.handle));
        let received = Received::of(call);
        let [a, b, c, d, e, f] = G2_ROWS[comm.rank()];
        assert_eq!(received.rows[..8], [a, b, c, 0., d, e, f, 0.]);
        assert!(received.rows[8..].iter().all(|&x| x == CANARY));
        assert!(received.weights[8..16].iter().all(|&x| x == 0.0));
        assert_eq!(received.weights[16..], [CANARY; 2]);
    });
}

#[test]
fn permute_windows_have_nothing_beyond_the_total_written() {
    ranks(2, |comm| {
        let ht = aligned(comm, G2, 4);
        let mut call = ht.dispatch_into(18);
        call.out_tokens = call.out_tokens.map(|tensor| window(comm, tensor));
        ok(call.call(&ht.handle));
        let received = Received::of(call);
        assert!(received.rows[8..].iter().all(|&x| x == CANARY));
        assert!(received.weights[8..].iter().all(|&x| x == CANARY));
    });
}

#[test]
fn windows_without_a_pointer_are_resolved_with_their_offset() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let mut memory = window(comm, Ten::filled(&[20, H], bf16::from_f32(CANARY)));
        let mut call = ht.dispatch_into(16);
        let out = call.out_tokens.as_mut().unwrap();
        out.d();
        out.raw().win_hdl = memory.raw().win_hdl;
        out.raw().win_offset = (4 * H * 2) as u64;
        // The descriptor is written by hand, because the harness always gives data.
        let mut tensor = *out.raw();
        tensor.data = null_mut();
        let mut inputs = ncclEpDispatchInputs_t::init();
        (inputs.tokens, inputs.topk_weights) = (d(&mut call.tokens), d(&mut call.weights));
        let mut outputs = ncclEpDispatchOutputs_t::init();
        outputs.tokens = &mut tensor;
        outputs.topk_weights = d(&mut call.out_weights);
        outputs.topk_idx = d(&mut call.out_ids);
        let dispatch = api().ncclEpDispatch;
        // SAFETY: the handle is live, the structs and tensors are this frame's, and a window that
        // does
        // not exist or is too short is refused before anything is written.
        let run = |outputs: &ncclEpDispatchOutputs_t| unsafe {
            dispatch(ht.handle.raw, &inputs, outputs, null(), null(), null_mut())
        };
        ok(run(&outputs));
        let rows = values(&memory.data, H);
        assert_eq!(rows[..4], [CANARY; 4]);
        let expected: [&[f32]; 2] = [&[1., 2., 3., 7.], &[1., 2., 5., 6., 8.]];
        assert!(rows[4..].starts_with(expected[comm.rank()]));
        // One row too far.
        tensor.win_offset += (H * 2) as u64;
        outputs.tokens = &mut tensor;
        refused(run(&outputs), ARGUMENT, FailureClass::UndefinedBehaviour);
        tensor.win_hdl = (&raw mut tensor).cast();
        outputs.tokens = &mut tensor;
        refused(run(&outputs), ARGUMENT, FailureClass::UndefinedBehaviour);
    });
}

// Limits of the modes (EP 4.8.1, 8).

#[test]
fn local_dup_sums_at_most_eight_experts_of_a_token_on_a_rank() {
    let fixture = |topk, ids| Fixture { experts: 32, topk, ids, ..THREE };
    let cases = [
        (fixture(8, |r| if r == 0 { (0..8).collect() } else { vec![] }), true),
        (fixture(9, |r| if r == 0 { (0..9).collect() } else { vec![] }), false),
    ];
    ranks(2, |comm| {
        for (fixture, fits) in cases {
            let ht = Ht::with(comm, fixture, EM, 0, |c| c.zero_copy = ON);
            let mut call = ht.combine_of(&[1.0; 9]);
            call.tokens = call.tokens.map(|tensor| window(comm, tensor));
            let code = call.call(&ht.handle);
            if fits {
                ok(code);
            } else {
                refused(code, ARGUMENT, FailureClass::Trap);
            }
        }
    });
}

#[test]
fn expert_major_combine_has_at_most_32_experts_a_token() {
    let fixture = |topk| Fixture {
        experts: 64,
        topk,
        max_recv: 64,
        ids: |_| vec![],
        values: |_| vec![],
        ..THREE
    };
    ranks(2, |comm| {
        let ht = Ht::new(comm, fixture(32), EM);
        ok(ht.combine_of(&[0.0; 4]).call(&ht.handle));
        let ht = Ht::new(comm, fixture(33), EM);
        refused(ht.combine_of(&[0.0; 4]).call(&ht.handle), ARGUMENT, FailureClass::JitAbort);
        let flat = Ht::new(comm, fixture(40), FLAT);
        ok(flat.combine_of(&[0.0; 4]).call(&flat.handle));
    });
}

#[test]
fn dup_modes_need_a_power_of_two_of_local_experts() {
    let fixture = Fixture { experts: 12, ..G2 };
    ranks(2, |comm| {
        let mut ht = Ht::fresh(comm, fixture, EM, 0, |c| c.zero_copy = ON);
        let code = ht.update(&mut fixture.ids(comm.rank()));
        refused(code, ARGUMENT, FailureClass::Assert);
        Ht::with(comm, fixture, FLAT, 0, |c| c.zero_copy = ON);
        Ht::new(comm, fixture, EM);
    });
}

#[test]
fn too_few_rows_for_a_combine() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, EM);
        refused(ht.combine_of(&[0.0; 5]).call(&ht.handle), ARGUMENT, FailureClass::Trap);
    });
}
