//! EP 6.2, EP vectors L21 to L25: masks, time-outs, and coming back.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use common::masks::*;
use common::*;
use nccl_ep_sys::{
    VersionedStruct, ncclEpCombineConfig_t, ncclEpDispatchConfig_t, ncclEpGroupConfig_t,
};
use nccl_ext_core::{Comm, Error, bf16};
use nccl_ext_cpu::{CpuConfig, FailureClass, run_ranks};
use proptest::prelude::*;

/// A dispatch and a combine of what it received: counts, live rows, sums.
#[track_caller]
fn step(ll: &Ll) -> (Vec<i32>, Vec<f32>, Vec<f32>) {
    let received = ll.dispatch();
    let live = (0..received.counters.len()).flat_map(|i| received.rows_of(i).to_vec()).collect();
    let sums = ll.combine(&received.rows);
    (received.counters, live, sums)
}

/// What ranks without masks get, once all take part.
#[track_caller]
fn whole(ll: &Ll) {
    let (counts, _, sums) = step(ll);
    let expected = match ll.handle.layout == RM {
        true => ([[3, 1], [2, 3]], [[2., 4., 3., 0.], [5., 6., 7., 8.]]),
        false => ([[3, 3], [3, 4]], [[2.25, 8.5, 18.75, 0.], [25., 73.5, 100., 130.]]),
    };
    assert_eq!(counts, expected.0[ll.rank]);
    assert_eq!(sums, expected.1[ll.rank]);
}

#[test]
fn nobody_masked_is_as_without_masks() {
    for layout in [EM, RM] {
        ranks(2, |comm| {
            let group = masked(comm, G2, LONG);
            let ll = Ll::on(group, comm.rank(), G2, layout);
            let plain = Ll::new(comm, G2, layout);
            for _ in 0..3 {
                let (found, expected) = (ll.dispatch(), plain.dispatch());
                assert_eq!(found, expected);
                assert_eq!(ll.combine(&found.rows), plain.combine(&expected.rows));
                // A second combine of one dispatch.
                assert_eq!(ll.combine(&found.rows), plain.combine(&expected.rows));
            }
            whole(&ll);
            assert_eq!(ll.group.async_error(), 0);
        });
    }
}

#[test]
fn l21_ranks_that_mask_each_other() {
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, LONG), me, G2, RM);
        ll.group.set_mask(&[[1, 0], [0, 1]][me]);
        let start = Instant::now();
        let (counts, live, sums) = step(&ll);
        let expected: [(_, &[f32], _); 2] =
            [([3, 0], &[1., 2., 3.], [1., 2., 3., 0.]), ([0, 3], &[5., 6., 8.], [5., 6., 0., 8.])];
        assert_eq!((counts, &live[..], sums), {
            let (counts, live, sums) = expected[me];
            (counts.to_vec(), live, sums.to_vec())
        });
        assert!(start.elapsed() < LONG, "masked ranks are not waited for");
        assert_eq!(ll.group.async_error(), 0);
    });
}

#[test]
fn l21_expert_major() {
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, LONG), me, G2, EM);
        ll.group.set_mask(&[[1, 0], [0, 1]][me]);
        let (counts, live, sums) = step(&ll);
        // Rank 0 keeps its tokens 1, 3 for expert 0 and 2, 3 for expert 1.
        let expected: [([i32; 2], &[f32]); 2] =
            [([2, 2], &[1., 3., 2., 3.]), ([2, 3], &[5., 8., 6., 6., 8.])];
        assert_eq!((&counts[..], &live[..]), (&expected[me].0[..], expected[me].1));
        let weight = |v: f32, k: usize| v + k as f32 / 4.0;
        let sum = |v: f32, ks: &[usize]| {
            let sum: f32 = ks.iter().map(|&k| v * weight(v, k)).sum();
            bf16::from_f32(sum).to_f32()
        };
        let expected = match me {
            0 => [sum(1., &[0]), sum(2., &[1]), sum(3., &[0, 1]), 0.],
            _ => [sum(5., &[0]), sum(6., &[0, 1]), 0., sum(8., &[0, 1])],
        };
        assert_eq!(sums, expected);
    });
}

#[test]
fn l22_all_ranks_are_active_after_creation() {
    ranks(3, |comm| {
        let fixture = Fixture { ranks: 3, experts: 6, ..G2 };
        let group = masked(comm, fixture, LONG);
        assert_eq!(group.mask(3), [1, 1, 1]);
        group.set_mask(&[1, 7, 0]);
        // Values are kept as they are given.
        assert_eq!(group.mask(3), [1, 7, 0]);
    });
}

#[test]
fn values_other_than_0_are_active() {
    ranks(2, |comm| {
        let ll = Ll::on(masked(comm, G2, LONG), comm.rank(), G2, RM);
        ll.group.set_mask(&[-1, 7]);
        whole(&ll);
        assert_eq!(ll.group.mask(2), [-1, 7]);
    });
}

#[test]
fn l23_clean_needs_a_handle_or_an_explicit_buffer() {
    ranks(1, |comm| {
        let config = masked_config(Fixture { experts: 4, ..G2 }, LONG);
        let group = Group::new(comm, &config);
        // SAFETY: the group is live.
        let clean = |group: &Group| unsafe { (api().ncclEpMaskClean)(group.raw, null_mut()) };
        refused(clean(&group), USAGE, FailureClass::Throw);
        // A handle whose creation fails makes no buffer.
        let (code, broken) = group.init(RM, 33, 0);
        assert_eq!(code, ARGUMENT);
        // SAFETY: the handle is the refused call's, and this is its only use.
        ok(unsafe { (api().ncclEpHandleDestroy)(broken) });
        refused(clean(&group), USAGE, FailureClass::Throw);
        drop(group.handle(RM, 2, 0));
        ok(clean(&group));
        let explicit =
            Group::new(comm, &ncclEpGroupConfig_t { rdma_buffer_size: 1 << 20, ..config });
        ok(clean(&explicit));
    });
}

#[test]
fn clean_lays_out_a_rank_major_buffer_of_its_own() {
    // EP 12, #13: R*M*cm = 520 is no multiple of 16, though an expert-major handle is fine.
    ranks(1, |comm| {
        let config = ncclEpGroupConfig_t {
            max_dispatch_tokens_per_rank: 1,
            max_token_bytes: 512,
            ..masked_config(Fixture { experts: 4, ..G2 }, LONG)
        };
        let group = Group::new(comm, &config);
        let _handle = group.handle(EM, 2, 0);
        // SAFETY: the group is live.
        let code = unsafe { (api().ncclEpMaskClean)(group.raw, null_mut()) };
        refused(code, ARGUMENT, FailureClass::Throw);
    });
}

#[test]
fn clean_serves_at_most_256_ranks() {
    ranks(257, |comm| {
        let fixture = Fixture { ranks: 257, experts: 514, max_tokens: 1, ..G2 };
        let group = Group::new(comm, &masked_config(fixture, LONG));
        let _handle = group.handle(RM, 2, 0);
        // SAFETY: the group is live.
        let code = unsafe { (api().ncclEpMaskClean)(group.raw, null_mut()) };
        refused(code, USAGE, FailureClass::Trap);
    });
}

#[test]
fn l24_less_than_a_millisecond_is_no_time() {
    let late = Fence::new(2);
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, Duration::from_nanos(999_999)), me, G2, RM);
        if me == 1 {
            late.wait();
            // Rank 0's packet is there, so nothing has to be waited for.
            let received = ll.dispatch();
            assert_eq!(received.counters, [2, 3]);
            assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 1], 0));
        } else {
            // Rank 1 has not come: rank 0 does not wait, and goes on with its own rows.
            let start = Instant::now();
            let received = ll.dispatch();
            assert!(start.elapsed() < Duration::from_secs(5));
            assert_eq!(received.counters, [3, 0]);
            assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 0], 1));
            late.wait();
        }
    });
}

#[test]
fn l25_the_error_flag_starts_clear_and_is_cleared() {
    ranks(1, |comm| {
        let group = masked(comm, Fixture { experts: 4, ..G2 }, LONG);
        assert_eq!(group.async_error(), 0);
        group.clear_error();
        assert_eq!(group.async_error(), 0);
    });
}

#[test]
fn a_rank_that_is_masked_alone_times_out_and_masks_back() {
    for layout in [EM, RM] {
        ranks(2, |comm| {
            let me = comm.rank();
            let ll = Ll::on(masked(comm, G2, SHORT), me, G2, layout);
            if me == 0 {
                ll.group.set_mask(&[1, 0]);
            }
            let start = Instant::now();
            let (counts, ..) = step(&ll);
            let waited = start.elapsed();
            if me == 0 {
                assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 0], 0));
            } else {
                assert!(waited >= SHORT, "{waited:?}");
                assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![0, 1], 1));
                assert_eq!(counts, if layout == RM { [0, 3] } else { [2, 3] });
            }
        });
    }
}

#[test]
fn a_rank_that_comes_late_is_left_out() {
    let met = Fence::new(2);
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, SHORT), me, G2, RM);
        if me == 0 {
            let (counts, _, sums) = step(&ll);
            assert_eq!((counts, sums), (vec![3, 0], vec![1., 2., 3., 0.]));
            assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 0], 1));
            ll.group.clear_error();
            assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 0], 0));
            met.wait();
        } else {
            met.wait();
            // Rank 0's dispatch came through, its combine does not any more.
            let received = ll.dispatch();
            assert_eq!(received.counters, [2, 3]);
            assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 1], 0));
            assert_eq!(ll.combine(&received.rows), [5., 6., 0., 8.]);
            assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![0, 1], 1));
        }
    });
}

#[test]
fn a_rank_that_left_is_masked_without_waiting() {
    let config = CpuConfig::new().timeout(Duration::from_secs(20));
    let results = run_ranks(3, &config, |comm: Comm| {
        let fixture = Fixture {
            ranks: 3,
            experts: 6,
            ids: |_| vec![0, 2, 4, 1],
            values: |r| vec![r as f32 + 1., r as f32 + 5.],
            ..G2
        };
        let group = Group::new(&comm, &masked_config(fixture, LONG));
        let me = comm.rank();
        if me == 2 {
            std::mem::forget(group);
            return Ok::<_, Error>(());
        }
        let ll = Ll::on(group.into(), me, fixture, RM);
        let start = Instant::now();
        let (counts, _, sums) = step(&ll);
        assert!(start.elapsed() < LONG);
        assert_eq!(counts, [[2, 2, 0], [1, 1, 0]][me]);
        let value = me as f32;
        assert_eq!(sums, [2. * (value + 1.), value + 5.]);
        assert_eq!((ll.group.mask(3), ll.group.async_error()), (vec![1, 1, 0], 1));
        // Destroying is a collective of all ranks, of which one is gone.
        std::mem::forget(ll);
        Ok(())
    });
    for result in results {
        result.unwrap();
    }
}

#[test]
fn a_rank_that_masks_itself_keeps_out_its_own_rows() {
    for layout in [EM, RM] {
        ranks(2, |comm| {
            let me = comm.rank();
            let ll = Ll::on(masked(comm, G2, LONG), me, G2, layout);
            if me == 0 {
                ll.group.set_mask(&[0, 1]);
            }
            let (counts, _, sums) = step(&ll);
            if layout == RM {
                assert_eq!(counts, [[0, 1], [2, 3]][me]);
                // Rank 0's tokens keep what rank 1 gives back.
                assert_eq!(sums, [[1., 2., 0., 0.], [5., 6., 7., 8.]][me]);
            } else {
                assert_eq!(counts, [[1, 1], [3, 4]][me]);
                assert_eq!(sums[0], [1.25, 25.][me]);
            }
            assert_eq!(ll.group.async_error(), 0);
        });
    }
}

#[test]
fn three_ranks_go_on_without_the_masked_one() {
    let fixture = Fixture {
        ranks: 3,
        experts: 6,
        ids: |_| vec![0, 2, 4, 1, 5, 3],
        values: |r| (0..3).map(|t| (10 * r + t + 1) as f32).collect(),
        ..G2
    };
    let done = Fence::new(3);
    ranks(3, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, fixture, LONG), me, fixture, RM);
        if me == 1 {
            done.wait();
            return;
        }
        ll.group.set_mask(&[1, 0, 1]);
        let base = 10. * me as f32;
        for _ in 0..4 {
            let (counts, live, sums) = step(&ll);
            assert_eq!(counts, [2, 0, 2]);
            let tokens = [[1., 2.], [2., 3.]][me / 2];
            assert_eq!(live, [tokens[0], tokens[1], 20. + tokens[0], 20. + tokens[1]]);
            assert_eq!(sums, [base + 1., 2. * (base + 2.), base + 3.]);
        }
        assert_eq!(ll.group.async_error(), 0);
        done.wait();
    });
}

#[test]
fn ranks_unmask_each_other_by_update() {
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, LONG), me, G2, RM);
        ll.group.set_mask(&[[1, 0], [0, 1]][me]);
        step(&ll);
        ll.group.set_mask(&[1, 1]);
        whole(&ll);
        whole(&ll);
    });
}

#[test]
fn a_contribution_of_a_rank_that_missed_the_dispatch_is_left_out() {
    let met = Fence::new(2);
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, LONG), me, G2, RM);
        ll.group.set_mask(&[[1, 0], [0, 1]][me]);
        let received = ll.dispatch();
        met.wait();
        // Active again for the combine only: there is nothing of the other's to give back.
        ll.group.set_mask(&[1, 1]);
        let expected = [[1., 2., 3., 0.], [5., 6., 0., 8.]];
        assert_eq!(ll.combine(&received.rows), expected[me]);
        assert_eq!(ll.group.mask(2), [1, 1]);
    });
}

#[test]
fn clean_makes_all_active_and_leaves_the_flag() {
    let fence = Fence::new(2);
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, SHORT), me, G2, RM);
        if me == 0 {
            // Two operations ahead of the other, which did not come.
            step(&ll);
            assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 0], 1));
        }
        fence.wait();
        if me == 1 {
            ll.group.set_mask(&[0, 1]);
        }
        ll.group.clean();
        assert_eq!(ll.group.mask(2), [1, 1]);
        assert_eq!(ll.group.async_error(), 1 - me as i32, "cleaning does not clear the flag");
        fence.wait();
        for _ in 0..3 {
            whole(&ll);
        }
        assert_eq!(ll.group.mask(2), [1, 1]);
    });
}

#[test]
fn operation_counts_that_differ_in_parity_stay_apart() {
    let fence = Fence::new(2);
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, SHORT), me, G2, RM);
        if me == 0 {
            ll.dispatch();
        }
        fence.wait();
        if me == 1 {
            ll.group.set_mask(&[0, 1]);
        }
        ll.group.clean();
        ll.group.clear_error();
        fence.wait();
        let received = ll.dispatch();
        assert_eq!(received.counters, [[3, 0], [0, 3]][me]);
        assert_eq!(ll.group.async_error(), 1);
        assert_eq!(ll.group.mask(2), [[1, 0], [0, 1]][me]);
    });
}

#[test]
fn clean_is_a_barrier_of_ranks_that_see_each_other() {
    let order = std::sync::Mutex::new(Vec::new());
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, LONG), me, G2, RM);
        for round in 0..3 {
            if me == 1 {
                std::thread::sleep(Duration::from_millis(50));
                order.lock().unwrap().push(round);
            }
            ll.group.clean();
            assert_eq!(order.lock().unwrap().len(), round + 1, "rank {me} left too early");
            whole(&ll);
        }
    });
}

#[test]
fn clean_waits_for_a_masking_peer_until_its_time_out() {
    let left = Fence::new(2);
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, SHORT), me, G2, RM);
        // Rank 0 masks rank 1, has cleaned and left before rank 1 comes.
        if me == 0 {
            ll.group.set_mask(&[1, 0]);
            ll.group.clean();
            left.wait();
        } else {
            left.wait();
            let start = Instant::now();
            ll.group.clean();
            assert!(start.elapsed() >= SHORT);
        }
        assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 1], 0));
    });
}

#[test]
fn a_rank_that_masks_itself_does_not_wait_in_clean() {
    let done = Fence::new(2);
    ranks(2, |comm| {
        let ll = Ll::on(masked(comm, G2, LONG), comm.rank(), G2, RM);
        if comm.rank() == 0 {
            ll.group.set_mask(&[0, 1]);
            let start = Instant::now();
            ll.group.clean();
            assert!(start.elapsed() < LONG);
            assert_eq!(ll.group.mask(2), [1, 1]);
        }
        done.wait();
    });
}

#[test]
fn clean_erases_what_was_not_taken() {
    let fence = Fence::new(2);
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, SHORT), me, G2, RM);
        if me == 1 {
            // Rank 0 does not come to this, but its packet is there.
            assert_eq!(ll.dispatch().counters, [0, 3]);
        }
        fence.wait();
        if me == 0 {
            ll.group.set_mask(&[1, 0]);
        }
        ll.group.clean();
        fence.wait();
        if me == 0 {
            assert_eq!(ll.dispatch().counters, [3, 0]);
            assert_eq!((ll.group.mask(2), ll.group.async_error()), (vec![1, 0], 1));
        }
        fence.wait();
    });
}

#[test]
fn an_old_packet_of_a_masked_rank_is_not_taken_for_a_new_one() {
    let fence = Fence::new(2);
    ranks(2, |comm| {
        let me = comm.rank();
        let ll = Ll::on(masked(comm, G2, SHORT), me, G2, RM);
        // Rank 1 sends to rank 0, which does not look, and then masks it in turn.
        if me == 0 {
            ll.group.set_mask(&[1, 0]);
        }
        let received = ll.dispatch();
        fence.wait();
        ll.combine(&received.rows);
        fence.wait();
        ll.group.set_mask(&[1, 1]);
        fence.wait();
        if me == 0 {
            // Rank 1 does not come to this one.
            assert_eq!(ll.dispatch().counters, [3, 0]);
        }
        fence.wait();
    });
}

#[test]
fn staged_operations_with_masks() {
    for layout in [EM, RM] {
        ranks(2, |comm| {
            let me = comm.rank();
            let ll = Ll::on(masked(comm, G2, LONG), me, G2, layout);
            let plain = Ll::new(comm, G2, layout);
            // SAFETY: the handle is live; no configuration and the null stream.
            let complete =
                || ok(unsafe { (api().ncclEpComplete)(ll.handle.raw, null(), null_mut()) });
            for mutual in [false, true] {
                if mutual {
                    ll.group.set_mask(&[[1, 0], [0, 1]][me]);
                }
                let mut call = ll.dispatch_call(WIDE);
                call.config =
                    Some(ncclEpDispatchConfig_t { send_only: 1, ..VersionedStruct::init() });
                ok(call.call(&ll.handle));
                // In between nothing else of the group runs.
                let mut other = ll.dispatch_call(WIDE);
                refused(other.call(&ll.handle), USAGE, FailureClass::Trap);
                // SAFETY: the group is live.
                let code = unsafe { (api().ncclEpMaskClean)(ll.group.raw, null_mut()) };
                refused(code, USAGE, FailureClass::Trap);
                complete();
                let received = ll.received(call);
                let mut call = ll.combine_call(&received.rows, WIDE);
                call.config =
                    Some(ncclEpCombineConfig_t { send_only: 1, ..VersionedStruct::init() });
                ok(call.call(&ll.handle));
                complete();
                let sums = values(&call.out.unwrap().data, WIDE);
                if mutual {
                    assert_eq!(received.counters[1 - me], [0, 2][usize::from(layout == EM)]);
                } else {
                    let expected = plain.dispatch();
                    assert_eq!(received, expected);
                    assert_eq!(sums, plain.combine(&expected.rows));
                }
            }
        });
    }
}

#[test]
fn ranks_in_different_operations_are_told() {
    ranks(2, |comm| {
        let me = comm.rank();
        let group = masked(comm, G2, SHORT);
        let lls = [EM, RM].map(|layout| Ll::on(group.clone(), me, G2, layout));
        let mut call = lls[me].dispatch_call(WIDE);
        refused(call.call(&lls[me].handle), USAGE, FailureClass::UndefinedBehaviour);
    });
}

#[test]
fn functions_of_groups_without_masks_and_null_pointers() {
    ranks(1, |comm| {
        let fixture = Fixture { experts: 4, ..G2 };
        let api = api();
        let plain = Group::new(comm, &fixture.config(LL, WIDE));
        let high =
            Group::new(comm, &ncclEpGroupConfig_t { enable_mask: 1, ..fixture.config(HT, H) });
        let group = masked(comm, fixture, LONG);
        // SAFETY: the group is live or null, and a null pointer is refused before it is used.
        let calls = |group: *mut nccl_ep_sys::ncclEpGroup| unsafe {
            [
                (api.ncclEpMaskQuery)(group.cast(), null_mut(), null_mut()),
                (api.ncclEpMaskUpdate)(group.cast(), null(), null_mut()),
                (api.ncclEpGetAsyncError)(group.cast(), null_mut()),
                (api.ncclEpMaskClean)(group.cast(), null_mut()),
                (api.ncclEpErrorClear)(group.cast()),
            ]
        };
        // The class is that of the last refusal, so each function is asked alone where it counts.
        assert_eq!(calls(plain.raw), [USAGE; 5]);
        assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Return));
        assert_eq!(calls(high.raw), [USAGE; 5]);
        assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Throw));
        assert_eq!(calls(null_mut()), [ARGUMENT; 5]);
        assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Throw));
        // SAFETY: the group is live, and the null mask is refused before it is used.
        let code = unsafe { (api.ncclEpMaskQuery)(group.raw, null_mut(), null_mut()) };
        refused(code, ARGUMENT, FailureClass::Throw);
        // SAFETY: the group is live, and the null mask is refused before it is used.
        let code = unsafe { (api.ncclEpMaskUpdate)(group.raw, null(), null_mut()) };
        refused(code, ARGUMENT, FailureClass::Throw);
        // SAFETY: the group is live, and the null pointer is refused before it is used.
        let code = unsafe { (api.ncclEpGetAsyncError)(group.raw, null_mut()) };
        refused(code, ARGUMENT, FailureClass::Throw);
    });
}

/// Three ranks, four tokens each, three experts a token.
const TRIO: Fixture = Fixture {
    ranks: 3,
    experts: 6,
    max_tokens: 4,
    topk: 3,
    ids: |_| vec![-1; 12],
    values: |r| (1..=4).map(|i| (4 * r + i) as f32).collect(),
    weight: |v, k| v + k as f32 / 4.0,
    max_recv: 12,
};

/// Different experts, or none, for each token of each rank.
fn routing() -> impl Strategy<Value = Vec<Vec<i64>>> {
    let token = prop::sample::subsequence(vec![0, 1, 2, 3, 4, 5, -1, -1, -1], 3).prop_shuffle();
    let rank = prop::collection::vec(token, 4).prop_map(|tokens| tokens.concat());
    prop::collection::vec(rank, 3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Masks that agree do what leaving out the ids of masked ranks does.
    #[test]
    fn a_mask_is_as_ids_left_out(
        routing in routing(),
        pairs in prop::collection::vec(0..2_i32, 6),
        rank_major in any::<bool>(),
    ) {
        // Symmetric: three pairs, whose ranks sum up to 1, 2 and 3, and the diagonal.
        let active = |a: usize, b: usize| pairs[if a == b { 3 + a } else { a + b - 1 }];
        ranks(3, |comm| {
            let me = comm.rank();
            let layout = if rank_major { RM } else { EM };
            let step = |group: std::rc::Rc<Group>, ids: Ten<i64>| {
                let mut ll =
                    Ll { fixture: TRIO, rank: me, handle: group.handle(layout, 3, 0), group, ids };
                ok(update_with(&ll.handle, &mut ll.ids, null()));
                let received = ll.dispatch();
                let sums = ll.combine(&received.rows);
                (received, sums)
            };
            let group = masked(comm, TRIO, LONG);
            let mask: Vec<_> = (0..3).map(|rank| active(me, rank)).collect();
            group.set_mask(&mask);
            let found = step(group.clone(), ids(3, &routing[me]));
            assert_eq!((group.mask(3), group.async_error()), (mask.clone(), 0));
            let kept = routing[me].iter().map(|&id| match id {
                0.. if mask[id as usize / 2] == 0 => -1,
                id => id,
            });
            let plain = Group::new(comm, &TRIO.config(LL, WIDE));
            let expected = step(plain.into(), ids(3, &kept.collect::<Vec<_>>()));
            assert_eq!(found, expected);
        });
    }
}

#[test]
fn duplicates_that_overfill_an_expert_are_refused_where_they_arrive() {
    ranks(2, |comm| {
        let fixture = Fixture { ids: |_| vec![0; 8], ..G2 };
        let ll = Ll::on(masked(comm, fixture, LONG), comm.rank(), fixture, EM);
        let mut call = ll.dispatch_call(WIDE);
        let code = call.call(&ll.handle);
        if comm.rank() == 0 {
            refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
            assert!(call.out_tokens.unwrap().data.iter().all(|x| x.to_f32() == CANARY));
            let mut combine = ll.combine_call(&[0.; 16], WIDE);
            refused(combine.call(&ll.handle), USAGE, FailureClass::UndefinedBehaviour);
        } else {
            ok(code);
        }
    });
}
