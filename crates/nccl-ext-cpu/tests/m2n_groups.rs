//! M2N 4.3, 8.4: groups whose effects the table of calls does not show.

#![allow(clippy::unwrap_used, clippy::panic)]

mod m2n_common;

use std::ptr::{null, null_mut, without_provenance_mut};

use m2n_common::*;
use nccl_ext_core::Comm;
use nccl_ext_core::raw::{ncclComm_t, ncclResult_t};
use nccl_ext_cpu::{FailureClass, backend, last_refusal, unique_id};

fn nothing(comm: ncclComm_t) -> ncclResult_t {
    // SAFETY: null tensors are refused before anything is read; a communicator that is not null is
    // live.
    unsafe { (api().ncclReshard)(null_mut(), comm, null(), null(), null_mut()) }
}

#[track_caller]
fn untouched(buffers: &Buffers) {
    if let Some(tile) = &buffers.dst {
        assert!(tile.data().iter().all(|&byte| byte == CANARY));
    }
}

#[test]
fn g08_nothing_is_issued_when_an_entry_of_the_bucket_is_bad() {
    let case = Case::plain(4);
    let bad = Case { src: Side { shape: vec![1; 7], ..case.src.clone() }, ..case.clone() };
    ranks(2, |comm| {
        let mut buffers = [(); 3].map(|()| case.buffers(comm.rank(), pattern));
        group_start();
        ok(case.call(comm.as_raw(), &mut buffers[0]));
        ok(case.call(comm.as_raw(), &mut buffers[1]));
        ok(bad.call(comm.as_raw(), &mut buffers[2]));
        refused(group_end(), ARGUMENT, FailureClass::Return, &["entry 2 of 3 failed"]);
        buffers.iter().for_each(untouched);
    });
}

#[test]
fn g14_an_earlier_bucket_stays_issued() {
    let case = Case::plain(4);
    ranks(2, |comm| {
        let mut first = case.buffers(comm.rank(), pattern);
        group_start();
        ok(case.call(comm.as_raw(), &mut first));
        let per_thread = without_provenance_mut(2);
        // SAFETY: null tensors are refused before anything is read; the communicator is live.
        ok(unsafe { (api().ncclReshard)(null_mut(), comm.as_raw(), null(), null(), per_thread) });
        refused(group_end(), ARGUMENT, FailureClass::Return, &["entry 1 of 2 failed"]);
        case.check(comm.rank(), &first);
    });
}

#[test]
fn g15_descriptors_are_copied() {
    let case = Case::new(4, 2, "{2}@0 [S0] 3x4", "{2}@2 [S1] 6x2");
    ranks(4, |comm| {
        let mut buffers = case.buffers(comm.rank(), pattern);
        let pointer = |tile: &mut Option<Tile>| tile.as_mut().map_or(null_mut(), Tile::pointer);
        let mut src = Descriptor::new(&case.src, case.dtype, pointer(&mut buffers.src));
        let mut dst = Descriptor::new(&case.dst, case.dtype, pointer(&mut buffers.dst));
        group_start();
        let (s, d) = (src.raw(), dst.raw());
        // SAFETY: the communicator is live; the call copies the descriptors, and the buffers
        // outlive the group.
        ok(unsafe { (api().ncclReshard)(null_mut(), comm.as_raw(), s, d, null_mut()) });
        (src.shape[0], src.placements[0], src.dims[0]) = (99, 7, -3);
        src.tensor.ndims = 9;
        (dst.tensor.dataPtr, dst.tensor.mesh) = (null_mut(), null());
        drop((src, dst));
        ok(group_end());
        case.check(comm.rank(), &buffers);
    });
}

/// Two communicators: all ranks, and those of `second` in a world of their own.
fn with_two(count: usize, second: &[usize], body: impl Fn(&Comm, Option<&Comm>) + Sync) {
    let id = unique_id(&config());
    ranks(count, |comm| {
        let local = second.iter().position(|&rank| rank == comm.rank());
        let other = local.map(|rank| Comm::init_rank(backend(), second.len(), &id, rank).unwrap());
        body(comm, other.as_ref());
    });
}

#[test]
fn g16_buckets_run_in_the_order_of_their_first_entries() {
    let case = Case::new(4, 1, "{2}@0 [S0] 4", "{2}@2 [S0] 4");
    with_two(4, &[2, 3], |a, b| {
        let mut buffers = [(); 2].map(|()| case.buffers(a.rank(), pattern));
        group_start();
        ok(case.call(a.as_raw(), &mut buffers[0]));
        if let Some(b) = b {
            ok(nothing(b.as_raw()));
        }
        ok(case.call(a.as_raw(), &mut buffers[1]));
        match b {
            Some(_) => {
                refused(group_end(), ARGUMENT, FailureClass::Return, &["entry 1 of 3 failed"]);
            }
            None => ok(group_end()),
        }
        buffers.iter().for_each(|buffers| case.check(a.rank(), buffers));
    });
}

#[test]
fn g17_a_null_descriptor_keeps_a_bucket_from_fusing() {
    let case = Case::plain(8);
    ranks(2, |comm| {
        let mut buffers = case.buffers(comm.rank(), pattern);
        group_start();
        ok(case.call(comm.as_raw(), &mut buffers));
        ok(nothing(comm.as_raw()));
        refused(group_end(), ARGUMENT, FailureClass::Return, &["entry 1 of 2 failed"]);
        case.check(comm.rank(), &buffers);
    });
}

/// In the vendor's library the source rank returns and the others wait for ever.
#[test]
fn g18_an_alias_on_one_rank_fails_all() {
    let case = Case::new(3, 1, "{1}@0 [R] 4", "{1}@1 [R] 4");
    ranks(3, |comm| {
        let mut first = case.buffers(comm.rank(), pattern);
        let mut second = case.buffers(comm.rank(), pattern);
        group_start();
        ok(case.call(comm.as_raw(), &mut first));
        if comm.rank() == 0 {
            ok(case.call(comm.as_raw(), &mut first));
        } else {
            ok(case.call(comm.as_raw(), &mut second));
        }
        let (class, words): (_, &[&str]) = match comm.rank() {
            0 => (FailureClass::Return, &["entry 1 of 2 failed", "entries 0 and 1"]),
            _ => {
                let words = &["entry 1 of 2 failed", "rank 0", "entries 0 and 1"];
                (FailureClass::UndefinedBehaviour, words)
            }
        };
        refused(group_end(), ARGUMENT, class, words);
        untouched(&second);
        // The ranks are still in step.
        case.run(comm);
    });
}

#[test]
fn two_explicit_handles_are_two_buckets() {
    let case = Case::plain(4);
    ranks(2, |comm| {
        let handles = [(); 2].map(|()| init());
        // One source of both would be refused in one bucket.
        let mut buffers = case.buffers(comm.rank(), pattern);
        group_start();
        for handle in handles {
            ok(case.call_with(comm.as_raw(), handle, &mut buffers));
        }
        ok(group_end());
        case.check(comm.rank(), &buffers);
        handles.into_iter().for_each(finalize);
    });
}

#[test]
fn another_order_of_entries_fails_all_ranks() {
    let cases = [Case::plain(4), Case::plain(6)];
    ranks(2, |comm| {
        let mut buffers = [0, 1].map(|i| cases[i].buffers(comm.rank(), pattern));
        let order = if comm.rank() == 0 { [0, 1] } else { [1, 0] };
        group_start();
        for i in order {
            ok(cases[i].call(comm.as_raw(), &mut buffers[i]));
        }
        let words = &["entry 0 of 2 failed", "localShape", "[4,", "rank 0", "[6,", "rank 1"];
        refused(group_end(), ARGUMENT, FailureClass::UndefinedBehaviour, words);
        buffers.iter().for_each(untouched);
        cases[0].run(comm);
    });
}

#[test]
fn a_group_does_not_meet_single_calls() {
    let case = Case::plain(4);
    ranks(2, |comm| {
        let mut buffers = [(); 2].map(|()| case.buffers(comm.rank(), pattern));
        let code = if comm.rank() == 0 {
            group_start();
            for buffers in &mut buffers {
                ok(case.call(comm.as_raw(), buffers));
            }
            group_end()
        } else {
            case.call(comm.as_raw(), &mut buffers[0])
        };
        let words = &["number of transfers", "2 as on rank 0", "1 on rank 1"];
        refused(code, ARGUMENT, FailureClass::UndefinedBehaviour, words);
        buffers.iter().for_each(untouched);
    });
}

#[test]
fn more_than_4096_entries_go_one_by_one() {
    let case = Case::plain(3);
    ranks(2, |comm| {
        // Entries share their source, which only a fused bucket refuses.
        let mut buffers = case.buffers(comm.rank(), pattern);
        for (count, expected) in [(4097, OK), (4096, ARGUMENT)] {
            group_start();
            for _ in 0..count {
                ok(case.call(comm.as_raw(), &mut buffers));
            }
            assert_eq!(group_end(), expected, "{}", last_text());
        }
        assert_eq!(last_refusal(), Some(FailureClass::Return));
        case.check(comm.rank(), &buffers);
    });
}

/// M2N 3.3: a fused group spreads destinations over the source's replicas, single calls do not.
#[test]
fn d16_in_a_group_reads_from_both_replicas() {
    let case = Case::new(8, 1, "{2,2}@0 [R,S0] 2x4", "{2,2}@4 [R,S1] 4x2");
    let origins = ranks(8, |comm| {
        let mut buffers = [(); 2].map(|()| case.buffers(comm.rank(), |_, _| comm.rank() as u8));
        group_start();
        for buffers in &mut buffers {
            ok(case.call(comm.as_raw(), buffers));
        }
        ok(group_end());
        buffers.map(|buffers| {
            let mut from = buffers.dst.map_or(vec![], |tile| tile.data().to_vec());
            from.sort();
            from.dedup();
            from
        })
    });
    for (rank, from) in origins.into_iter().enumerate().skip(4) {
        let expected = if rank < 6 { vec![0, 1] } else { vec![2, 3] };
        assert_eq!(from, [expected.clone(), expected], "rank {rank}");
    }
}
