//! EP 9.5: overflow and eager mode.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use nccl_ep_sys::*;
use nccl_ext_core::{Comm, Error, bf16};
use nccl_ext_cpu::{CpuConfig, FailureClass, last_refusal, run_ranks};

const DROP: ncclEpOverflowPolicy_t = ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;

fn dropping(comm: &Comm, fixture: Fixture, layout: ncclEpLayout_t, alignment: usize) -> Ht {
    Ht::with(comm, fixture, layout, alignment, |c| c.overflow_policy = DROP)
}

/// F4's sizes, all tokens to expert 0, and room for half of them.
const ALL_TO_0: Fixture = Fixture { ids: |_| vec![0; 4], max_recv: 8, ..F4 };

#[test]
fn o01_flat_drop_counts_what_came() {
    ranks(4, |comm| {
        let ht = dropping(comm, ALL_TO_0, FLAT, 0);
        assert_eq!(ht.published.total, [16, 0, 0, 0][comm.rank()]);
        let rows = ht.dispatch().rows;
        ht.combine(&rows);
    });
}

#[test]
fn o02_flat_drop_keeps_the_first_ranks() {
    ranks(4, |comm| {
        let ht = dropping(comm, ALL_TO_0, FLAT, 0);
        let mut call = ht.dispatch_into(9);
        ok(call.call(&ht.handle));
        let rows = Received::of(call).rows;
        if comm.rank() == 0 {
            assert_eq!(rows, [1., 2., 3., 4., 5., 6., 7., 8., CANARY]);
        }
        let sums = ht.combine(&rows);
        let expected = if comm.rank() < 2 { (F4.values)(comm.rank()) } else { vec![0.0; 4] };
        assert_eq!(sums, expected);
    });
}

#[test]
fn o03_flat_drop_excludes_the_lost_from_the_counters() {
    ranks(4, |comm| {
        let counters = dropping(comm, ALL_TO_0, FLAT, 0).published.counters;
        assert_eq!(counters, if comm.rank() == 0 { [8, 0] } else { [0, 0] });
    });
}

#[test]
fn o04_permute_drop_with_a_zone_as_large_as_the_budget() {
    let fixture = Fixture { ids: |_| vec![0, 1, 0, 1], max_recv: 16, ..F4 };
    ranks(4, |comm| {
        let ht = dropping(comm, fixture, EM, 16);
        let mut call = ht.dispatch_into(18);
        ok(call.call(&ht.handle));
        let received = Received::of(call);
        if comm.rank() == 0 {
            let published = Published { counters: vec![16, 0], offsets: vec![0, 16], total: 32 };
            assert_eq!(ht.published, published);
            assert_eq!(received.rows[..8], [1., 3., 5., 7., 9., 11., 13., 15.]);
            assert_eq!(received.rows[8..16], [0.0; 8]);
            assert_eq!(received.weights[8..16], [0.0; 8]);
        }
        assert_eq!(received.rows[16..], [CANARY; 2]);
        assert_eq!(received.weights[16..], [CANARY; 2]);
        let r = 4.0 * comm.rank() as f32;
        assert_eq!(ht.combine(&received.rows), [r + 1., 0., r + 3., 0.]);
    });
}

#[test]
fn o05_permute_drop_with_phantom_rows() {
    let fixture = Fixture { ids: |_| vec![0, 0, 1, 1], max_recv: 8, ..F4 };
    ranks(4, |comm| {
        let ht = dropping(comm, fixture, EM, 4);
        let rows = ht.dispatch().rows;
        if comm.rank() == 0 {
            let published = Published { counters: vec![8, 0], offsets: vec![0, 8], total: 16 };
            assert_eq!(ht.published, published);
            assert_eq!(rows, [1., 2., 5., 6., 0., 0., 0., 0.]);
        }
        let expected = match comm.rank() {
            r @ 0..2 => [4. * r as f32 + 1., 4. * r as f32 + 2., 0., 0.],
            _ => [0.0; 4],
        };
        assert_eq!(ht.combine(&rows), expected);
    });
}

#[test]
fn o06_permute_drop_with_a_second_zone_cut() {
    let fixture = Fixture {
        topk: 1,
        max_recv: 8,
        ids: |r| [vec![0, 0, 0, 1], vec![0, 0, 1, 1]][r].clone(),
        ..G2
    };
    ranks(2, |comm| {
        let ht = dropping(comm, fixture, EM, 2);
        let rows = ht.dispatch().rows;
        if comm.rank() == 0 {
            let published = Published { counters: vec![6, 2], offsets: vec![0, 6], total: 10 };
            assert_eq!(ht.published, published);
            assert_eq!(rows, [1., 2., 3., 5., 6., 0., 4., 7.]);
        }
        let expected = [[1., 2., 3., 4.], [5., 6., 7., 0.]];
        assert_eq!(ht.combine(&rows), expected[comm.rank()]);
    });
}

/// G2's sizes, all tokens to expert 0, and room for one rank's.
const PAIR_TO_0: Fixture = Fixture { topk: 1, ids: |_| vec![0; 4], max_recv: 4, ..G2 };

#[test]
fn o07_flat_drop_of_a_whole_rank() {
    ranks(2, |comm| {
        let ht = dropping(comm, PAIR_TO_0, FLAT, 0);
        assert_eq!(ht.published.total, [8, 0][comm.rank()]);
        let rows = ht.dispatch().rows;
        if comm.rank() == 0 {
            assert_eq!(rows, [1., 2., 3., 4.]);
        }
        let expected = [[1., 2., 3., 4.], [0.0; 4]];
        assert_eq!(ht.combine(&rows), expected[comm.rank()]);
    });
}

#[test]
fn o07_permute_drop_clamps_offsets_to_the_budget() {
    ranks(2, |comm| {
        let ht = dropping(comm, PAIR_TO_0, EM, 0);
        let published = match comm.rank() {
            0 => Published { counters: vec![4, 0], offsets: vec![0, 4], total: 8 },
            _ => Published { counters: vec![0, 0], offsets: vec![0, 0], total: 0 },
        };
        assert_eq!(ht.published, published);
    });
}

#[test]
fn o08_trap_is_an_error_on_every_rank() {
    for layout in [FLAT, EM] {
        let results = run_ranks(2, &CpuConfig::new(), |comm| {
            let mut ht = Ht::fresh(&comm, PAIR_TO_0, layout, 0, |_| ());
            assert_ne!(ht.update(&mut PAIR_TO_0.ids(comm.rank())), OK);
            let (update, class) = (error().unwrap(), last_refusal());
            // Nobody waits for the rank that was overrun.
            let again = ht.update(&mut Ten::filled(&[0, 1], 0_i64));
            Ok::<_, Error>((update, class, again.is_success(), error()))
        });
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let (Error::Native { detail, .. }, Some(FailureClass::Trap), false, _) = &results[0] else {
            panic!("{results:?}");
        };
        assert!(detail.contains("at most 4 rows on rank 0") && detail.contains("found 8"));
        let (Error::PeerFailed { rank: 0, error }, None, false, later) = &results[1] else {
            panic!("{results:?}");
        };
        assert_eq!(error.to_string(), results[0].0.to_string());
        assert!(matches!(later, Some(Error::PeerFailed { rank: 0, .. })), "{later:?}");
    }
}

fn eager(comm: &Comm, fixture: Fixture, layout: ncclEpLayout_t, alignment: usize) -> Ht {
    Ht::with(comm, fixture, layout, alignment, |c| {
        c.max_recv_tokens_per_rank = 0;
        c.num_topk = fixture.topk as u32;
    })
}

#[test]
fn o09_eager_outputs_have_exactly_the_total() {
    ranks(4, |comm| {
        for layout in [FLAT, EM] {
            let ht = eager(comm, F4, layout, 0);
            let total = ht.published.total as usize;
            assert_eq!(total, 4);
            let code = ht.dispatch_into(total - 1).call(&ht.handle);
            refused(code, ARGUMENT, FailureClass::Return);
            let mut call = ht.dispatch_into(total);
            ok(call.call(&ht.handle));
            let rows = Received::of(call).rows;
            assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
            // Rows beyond are untouched.
            let mut call = ht.dispatch_into(total + 2);
            ok(call.call(&ht.handle));
            let received = Received::of(call);
            assert_eq!(received.rows[total..], [CANARY; 2]);
            assert!(received.weights[total..].iter().rev().take(2).all(|&x| x == CANARY));
        }
    });
}

#[test]
fn o09_eager_with_alignment_may_exceed_the_bound() {
    // One token, padded to 64 slots.
    let one = Fixture { ids: |_| vec![0], values: |_| vec![5.0], ..F4 };
    ranks(1, |comm| {
        let ht = eager(comm, Fixture { ranks: 1, ..one }, EM, 64);
        assert_eq!(ht.published.total, 64);
        let mut call = ht.dispatch_into(64);
        ok(call.call(&ht.handle));
        let rows = Received::of(call).rows;
        assert_eq!((rows[0], &rows[1..]), (5.0, &[0.0; 63][..]));
        assert_eq!(ht.combine(&rows), [5.0]);
    });
}

#[test]
fn o10_eager_ranks_that_receive_nothing() {
    ranks(4, |comm| {
        let ht = eager(comm, ALL_TO_0, EM, 0);
        let total = ht.published.total as usize;
        assert_eq!(total, [16, 0, 0, 0][comm.rank()]);
        let mut call = ht.dispatch_into(total);
        ok(call.call(&ht.handle));
        let received = Received::of(call);
        if comm.rank() == 0 {
            let all: Vec<_> = (1..=16).map(|x| x as f32).collect();
            assert_eq!((received.rows.clone(), received.weights), (all, vec![1.0; 16]));
        }
        assert_eq!(ht.combine(&received.rows), (F4.values)(comm.rank()));
    });
}

#[test]
fn o11_eager_tokens_and_weights_are_empty_together() {
    ranks(4, |comm| {
        let ht = eager(comm, ALL_TO_0, EM, 0);
        let total = ht.published.total as usize;
        let mut call = ht.dispatch_into(total);
        call.out_weights = Some(Ten::filled(&[if total == 0 { 4 } else { 0 }], CANARY));
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn o12_eager_drop() {
    ranks(2, |comm| {
        let mut config = G2.config(HT, H);
        config.max_recv_tokens_per_rank = 0;
        config.overflow_policy = DROP;
        let mut group = std::ptr::null_mut();
        let create = api().ncclEpCreateGroup;
        // SAFETY: the communicator is live; `group` and the config are this frame's.
        let code = unsafe { create(&mut group, comm.as_raw(), &config) };
        refused(code, ARGUMENT, FailureClass::Throw);
    });
}

const ON: ncclEpZeroCopyMode_t = ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;

fn dropping_dup(comm: &Comm, fixture: Fixture, alignment: usize) -> Ht {
    let group = |c: &mut ncclEpGroupConfig_t| {
        c.overflow_policy = DROP;
        c.zero_copy = ON;
    };
    Ht::with(comm, fixture, EM, alignment, group)
}

#[test]
fn o13_dup_modes_drop_only_with_an_aligned_budget() {
    ranks(4, |comm| {
        let mut config = Fixture { max_recv: 6, ..F4 }.config(HT, H);
        config.overflow_policy = DROP;
        config.zero_copy = ON;
        let group = Group::new(comm, &config);
        let (code, handle) = group.init(EM, 1, 4);
        refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
        // SAFETY: the handle is the refused call's, and this is its only use.
        ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
        drop(group.handle(EM, 1, 2));
    });
}

#[test]
fn o13_dup_modes_drop_copies_and_not_tokens() {
    // Rank 0's experts 0 and 1 get all eight tokens of both ranks; there are twelve rows.
    let fixture = Fixture { ids: |_| [0, 1].repeat(4), max_recv: 12, ..G2 };
    ranks(2, |comm| {
        let ht = dropping_dup(comm, fixture, 4);
        if comm.rank() == 0 {
            let published = Published { counters: vec![8, 4], offsets: vec![0, 8], total: 16 };
            assert_eq!(ht.published, published);
        }
        let mut call = ht.dispatch_into(13);
        call.out_tokens = call.out_tokens.map(|tensor| window(comm, tensor));
        ok(call.call(&ht.handle));
        let rows = Received::of(call).rows;
        if comm.rank() == 0 {
            assert_eq!(rows, [1., 2., 3., 4., 5., 6., 7., 8., 1., 2., 3., 4., CANARY]);
        }
        let mut combine = ht.combine_of(&rows);
        combine.tokens = combine.tokens.map(|tensor| window(comm, tensor));
        ok(combine.call(&ht.handle));
        let sums = values(&combine.out.unwrap().data, H);
        let expected = [[2., 4., 6., 8.], [5., 6., 7., 8.]];
        assert_eq!(sums, expected[comm.rank()]);
    });
}

#[test]
fn o13_dropped_rows_are_never_touched() {
    // The permute path zeroes the budget, and nothing beyond it.
    ranks(4, |comm| {
        let ht = dropping(comm, ALL_TO_0, EM, 0);
        let mut call = ht.dispatch_into(10);
        ok(call.call(&ht.handle));
        let tokens = &call.out_tokens.unwrap().data;
        assert!(tokens[8 * H..].iter().all(|&x| x == bf16::from_f32(CANARY)));
    });
}
