//! M2N 4.3, 8.4: groups whose effects the table of calls does not show.

use std::ptr::{null, null_mut, without_provenance_mut};

use nccl_ext_core::Comm;
use nccl_ext_core::raw::{ncclComm_t, ncclResult_t};
use nccl_ext_cpu::{FailureClass, backend, last_refusal, unique_id};
use nccl_ext_test::cpu::m2n::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::worlds;

/// Null tensors, which are refused when the entry is issued.
fn null_reshard(comm: ncclComm_t) -> ncclResult_t {
    // SAFETY: null tensors are refused before anything is read; a communicator that is not null is
    // live.
    unsafe { reshard(comm, null(), null()) }
}

/// The group ends in an error that every rank finds by itself.
#[track_caller]
fn assert_entry_refused(entry: usize, count: usize) {
    let words = format!("entry {entry} of {count} failed");
    assert_refused(group_end(), INVALID_ARGUMENT, FailureClass::Return, &[&words]);
}

/// M2N vector G08.
#[test]
fn nothing_is_issued_when_an_entry_of_the_bucket_is_bad() {
    let case = ReshardCase::plain(4);
    let bad =
        ReshardCase { src: TensorSide { shape: vec![1; 7], ..case.src.clone() }, ..case.clone() };
    both_ways(2, |comm| {
        let mut tiles = [(); 3].map(|()| case.pattern_tiles(comm.rank()));
        group_start();
        assert_ok(case.call(comm, &mut tiles[0]));
        assert_ok(case.call(comm, &mut tiles[1]));
        assert_ok(bad.call(comm, &mut tiles[2]));
        assert_entry_refused(2, 3);
        tiles.iter().for_each(RankTiles::assert_untouched);
    });
}

/// M2N vector G14.
#[test]
fn an_earlier_bucket_stays_issued() {
    let case = ReshardCase::plain(4);
    both_ways(2, |comm| {
        let mut first = case.pattern_tiles(comm.rank());
        group_start();
        assert_ok(case.call(comm, &mut first));
        let per_thread = without_provenance_mut(2);
        // SAFETY: null tensors are refused before anything is read; the communicator is live.
        assert_ok(unsafe {
            (api().ncclReshard)(null_mut(), comm.as_raw(), null(), null(), per_thread)
        });
        assert_entry_refused(1, 2);
        case.check(comm.rank(), &first);
    });
}

/// M2N vector G15.
#[test]
fn descriptors_are_copied() {
    let case = ReshardCase::new(4, 2, "{2}@0 [S0] 3x4", "{2}@2 [S1] 6x2");
    both_ways(4, |comm| {
        let mut tiles = case.pattern_tiles(comm.rank());
        let [mut src, mut dst] = case.descriptors(&mut tiles);
        group_start();
        let (s, d) = (src.raw(), dst.raw());
        // SAFETY: the communicator is live; the call copies the descriptors, and the tiles
        // outlive the group.
        assert_ok(unsafe { reshard(comm.as_raw(), s, d) });
        (src.shape[0], src.placements[0], src.dims[0]) = (99, 7, -3);
        src.tensor.ndims = 9;
        (dst.tensor.dataPtr, dst.tensor.mesh) = (null_mut(), null());
        drop((src, dst));
        assert_ok(group_end());
        case.check(comm.rank(), &tiles);
    });
}

/// Two communicators: all ranks, and those of `second` in a world of their own.
fn with_two_communicators(
    count: usize,
    second: &[usize],
    body: impl Fn(&Comm, Option<&Comm>) + Sync,
) {
    let id = unique_id(&worlds::config());
    both_ways(count, |comm| {
        let local = second.iter().position(|&rank| rank == comm.rank());
        let other = local.map(|rank| Comm::init_rank(backend(), second.len(), &id, rank).unwrap());
        body(comm, other.as_ref());
    });
}

/// M2N vector G16.
#[test]
fn buckets_run_in_the_order_of_their_first_entries() {
    let case = ReshardCase::new(4, 1, "{2}@0 [S0] 4", "{2}@2 [S0] 4");
    with_two_communicators(4, &[2, 3], |a, b| {
        let mut tiles = [(); 2].map(|()| case.pattern_tiles(a.rank()));
        group_start();
        assert_ok(case.call(a, &mut tiles[0]));
        if let Some(b) = b {
            assert_ok(null_reshard(b.as_raw()));
        }
        assert_ok(case.call(a, &mut tiles[1]));
        match b {
            Some(_) => {
                assert_entry_refused(1, 3);
            }
            None => assert_ok(group_end()),
        }
        tiles.iter().for_each(|tiles| case.check(a.rank(), tiles));
    });
}

/// M2N vector G17.
#[test]
fn a_null_descriptor_keeps_a_bucket_from_fusing() {
    let case = ReshardCase::plain(8);
    both_ways(2, |comm| {
        let mut tiles = case.pattern_tiles(comm.rank());
        group_start();
        assert_ok(case.call(comm, &mut tiles));
        assert_ok(null_reshard(comm.as_raw()));
        assert_entry_refused(1, 2);
        case.check(comm.rank(), &tiles);
    });
}

/// In the vendor's library the source rank returns and the others wait for ever.
///
/// M2N vector G18.
#[test]
fn an_alias_on_one_rank_fails_all() {
    let case = ReshardCase::new(3, 1, "{1}@0 [R] 4", "{1}@1 [R] 4");
    both_ways(3, |comm| {
        let mut first = case.pattern_tiles(comm.rank());
        let mut second = case.pattern_tiles(comm.rank());
        group_start();
        assert_ok(case.call(comm, &mut first));
        if comm.rank() == 0 {
            assert_ok(case.call(comm, &mut first));
        } else {
            assert_ok(case.call(comm, &mut second));
        }
        let (class, words): (_, &[&str]) = match comm.rank() {
            0 => (FailureClass::Return, &["entry 1 of 2 failed", "entries 0 and 1"]),
            _ => {
                let words = &["entry 1 of 2 failed", "rank 0", "entries 0 and 1"];
                (FailureClass::UndefinedBehaviour, words)
            }
        };
        assert_refused(group_end(), INVALID_ARGUMENT, class, words);
        RankTiles::assert_untouched(&second);
        // The ranks are still in step.
        case.run(comm);
    });
}

#[test]
fn two_explicit_handles_are_two_buckets() {
    let case = ReshardCase::plain(4);
    both_ways(2, |comm| {
        let handles = [(); 2].map(|()| init_handle());
        // One source of both would be refused in one bucket.
        let mut tiles = case.pattern_tiles(comm.rank());
        group_start();
        for handle in handles {
            assert_ok(case.call_with(comm, handle, &mut tiles));
        }
        assert_ok(group_end());
        case.check(comm.rank(), &tiles);
        handles.into_iter().for_each(finalize_handle);
    });
}

#[test]
fn another_order_of_entries_fails_all_ranks() {
    let cases = [ReshardCase::plain(4), ReshardCase::plain(6)];
    both_ways(2, |comm| {
        let mut tiles = [0, 1].map(|i| cases[i].pattern_tiles(comm.rank()));
        let order = if comm.rank() == 0 { [0, 1] } else { [1, 0] };
        group_start();
        for i in order {
            assert_ok(cases[i].call(comm, &mut tiles[i]));
        }
        let words = &["entry 0 of 2 failed", "localShape", "[4,", "rank 0", "[6,", "rank 1"];
        assert_refused(group_end(), INVALID_ARGUMENT, FailureClass::UndefinedBehaviour, words);
        tiles.iter().for_each(RankTiles::assert_untouched);
        cases[0].run(comm);
    });
}

#[test]
fn a_group_does_not_meet_single_calls() {
    let case = ReshardCase::plain(4);
    both_ways(2, |comm| {
        let mut tiles = [(); 2].map(|()| case.pattern_tiles(comm.rank()));
        let code = if comm.rank() == 0 {
            group_start();
            for tiles in &mut tiles {
                assert_ok(case.call(comm, tiles));
            }
            group_end()
        } else {
            case.call(comm, &mut tiles[0])
        };
        let words = &["number of transfers", "2 as on rank 0", "1 on rank 1"];
        assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour, words);
        tiles.iter().for_each(RankTiles::assert_untouched);
    });
}

#[test]
fn more_than_4096_entries_go_one_by_one() {
    let case = ReshardCase::plain(3);
    both_ways(2, |comm| {
        // Entries share their source, which only a fused bucket refuses.
        let mut tiles = case.pattern_tiles(comm.rank());
        for (count, expected) in [(4097, SUCCESS), (4096, INVALID_ARGUMENT)] {
            group_start();
            for _ in 0..count {
                assert_ok(case.call(comm, &mut tiles));
            }
            assert_eq!(group_end(), expected, "{}", last_text());
        }
        assert_eq!(last_refusal(), Some(FailureClass::Return));
        case.check(comm.rank(), &tiles);
    });
}

/// M2N 3.3: a fused group spreads destinations over the source's replicas, single calls do not.
///
/// M2N vector D16.
#[test]
fn a_group_reads_from_both_replicas() {
    let case = ReshardCase::new(8, 1, "{2,2}@0 [R,S0] 2x4", "{2,2}@4 [R,S1] 4x2");
    let origins = every_rank(8, |comm| {
        let mut tiles = [(); 2].map(|()| case.tiles(comm.rank(), |_, _| comm.rank() as u8));
        group_start();
        for tiles in &mut tiles {
            assert_ok(case.call(comm, tiles));
        }
        assert_ok(group_end());
        tiles.map(|tiles| {
            let mut from = tiles.dst.map_or(vec![], |tile| tile.data().to_vec());
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
