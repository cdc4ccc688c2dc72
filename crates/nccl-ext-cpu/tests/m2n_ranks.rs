//! Ranks that meet, and ranks that do not (M2N 2.7, 4.2).

#![allow(clippy::unwrap_used, clippy::panic)]

mod m2n_common;

use std::ptr::null_mut;
use std::time::Duration;

use m2n_common::*;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Error, Stream};
use nccl_ext_cpu::{
    CpuConfig, FailureClass, RankFailure, backend, last_refusal, run_ranks, unique_id,
};

#[test]
fn two_ranks_reshard() {
    ranks(2, |comm| Case::plain(8).run(comm));
}

/// Ranks in neither mesh take part, and a rank may be in any of many calls.
#[test]
fn eight_threads_reshard_at_once() {
    let cases = [
        Case::new(8, 1, "{2,2}@0 [R,S0] 20x40", "{2,2}@4 [R,S1] 40x20"),
        Case::new(8, 4, "{2}@5 [S2] 4x6x8", "{3}@1 [S1] 4x2x16"),
        Case::new(8, 2, "{7}@0 [S0] 12", "{1}@7 [R] 84"),
        Case::new(8, 8, "{1}@3 [R] 5x5", "{4}@4 [R] 5x5"),
    ];
    ranks(8, |comm| {
        for _ in 0..50 {
            for case in &cases {
                case.run(comm);
            }
        }
    });
}

#[test]
fn worlds_do_not_disturb_each_other() {
    let case = Case::new(4, 2, "{2}@0 [S0] 8x6", "{2}@2 [S1] 16x3");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                ranks(4, |comm| (0..50).for_each(|_| case.run(comm)));
            });
        }
    });
}

#[test]
fn large_tiles_arrive_whole() {
    let case = Case::new(4, 4, "{2}@0 [S0] 512x1024", "{2}@2 [S1] 1024x512");
    ranks(4, |comm| case.run(comm));
}

/// What one rank changes about a call that it shares with the others.
type Change = fn(&mut Case);

#[test]
fn ranks_that_ask_for_different_transfers_all_hear_of_it() {
    // Each is a valid call by itself, on a communicator of 6.
    let base = Case::new(6, 1, "{2}@0 [S0] 6x4", "{2}@2 [S1] 12x2");
    let changes: [(Change, &str, &str); 9] = [
        (
            |c| {
                c.src.shape = vec![3, 4];
                c.dst.shape = vec![6, 2];
            },
            "src localShape",
            "[3, 4, 0]",
        ),
        (
            |c| {
                c.dst.dims = vec![4];
                c.dst.shape = vec![12, 1];
            },
            "dst mesh dims",
            "[4, 1]",
        ),
        (|c| c.dst.start = 3, "dst mesh startRank", "[3]"),
        (
            |c| {
                c.dst.start = 4;
                c.src.start = 2;
            },
            "src mesh startRank",
            "[2]",
        ),
        (
            |c| {
                c.src.placements = vec![1];
                c.src.shape = vec![12, 2];
            },
            "src",
            "[12, 2, 0]",
        ),
        (|c| c.dtype = nccl_ext_core::raw::ncclDataType_t::ncclInt8, "dtype", "int8"),
        (
            |c| {
                c.src.shape.push(1);
                c.dst.shape.push(1);
            },
            "src localShape",
            "[6, 4, 1]",
        ),
        (
            |c| {
                c.src.shape = vec![1, 2];
                c.dst.shape = vec![1, 2];
                (c.src.placements, c.dst.placements) = (vec![-1], vec![-1]);
            },
            "src mesh dims",
            "[2, 1]",
        ),
        (
            |c| {
                c.src.dims = vec![1, 2];
                c.src.placements = vec![-1, 0];
            },
            "src mesh dims",
            "[1, 2]",
        ),
    ];
    ranks(6, |comm| {
        for (i, (change, what, found)) in changes.iter().enumerate() {
            // Also the rank that is in no mesh must agree; ranks take turns to differ.
            let odd = 1 + i % 5;
            let mut case = base.clone();
            if comm.rank() == odd {
                change(&mut case);
            }
            let mut buffers = case.buffers(comm.rank(), pattern);
            let code = case.call(comm.as_raw(), &mut buffers);
            let rank = format!("rank {odd}");
            if *what != "src mesh dims" || *found != "[2, 1]" {
                let words = [*what, *found, &rank, "rank 0"];
                refused(code, ARGUMENT, FailureClass::UndefinedBehaviour, &words);
            } else {
                refused(code, ARGUMENT, FailureClass::UndefinedBehaviour, &[&rank, "rank 0"]);
            }
            // Nothing moved, and the ranks are still in step.
            let untouched = |tile: &Tile| tile.data().iter().all(|&byte| byte == CANARY);
            assert!(buffers.dst.as_ref().is_none_or(untouched), "{what}");
            base.run(comm);
        }
    });
}

/// M2N 2.2: other ways to write the same transfer are the same transfer.
#[test]
fn normal_forms_are_compared() {
    let one = Case::new(4, 1, "{2}@0 [S0] 4", "{2}@2 [R] 8");
    let other = Case::new(4, 1, "{2,1}@0 [S0,R] 4", "{1,2}@2 [R,R] 8");
    ranks(4, |comm| if comm.rank() % 2 == 0 { one.run(comm) } else { other.run(comm) });
}

/// E33, E34: the rank without a tile knows, the others would wait for ever.
#[test]
fn a_missing_tile_fails_all_ranks() {
    let case = Case::new(3, 1, "{1}@0 [R] 4", "{1}@1 [R] 4");
    ranks(3, |comm| {
        for missing in 0..2 {
            let mut buffers = case.buffers(comm.rank(), pattern);
            if missing == 0 {
                buffers.src = None
            } else {
                buffers.dst = None
            }
            let code = case.call(comm.as_raw(), &mut buffers);
            let role = ["source", "destination"][missing];
            let words = [format!("active {role} rank {missing}")];
            let class = if comm.rank() == missing {
                FailureClass::Return
            } else {
                FailureClass::UndefinedBehaviour
            };
            refused(code, ARGUMENT, class, &[&words[0]]);
            case.run(comm);
        }
    });
}

/// Threads share memory that GPUs would not: what one writes no other may use.
#[test]
fn a_tile_that_two_ranks_write_fails_all() {
    struct Shared(*mut u8);
    // SAFETY: ranks only pass the pointer on, and the backend refuses tiles that overlap.
    unsafe impl Sync for Shared {}
    impl Shared {
        fn at(&self, offset: usize) -> *mut u8 {
            // SAFETY: every offset is within the memory of the test.
            unsafe { self.0.add(offset) }
        }
    }
    let mut memory = vec![7_u8; 64];
    let shared = Shared(memory.as_mut_ptr());
    let case = Case::new(4, 1, "{2}@0 [R] 8", "{2}@2 [R] 8");
    let call = |comm: &Comm, offsets: [usize; 4]| {
        let data = shared.at(offsets[comm.rank()]);
        let mut src = Descriptor::new(&case.src, case.dtype, data);
        let mut dst = Descriptor::new(&case.dst, case.dtype, data);
        // SAFETY: the communicator is live; the descriptors are this frame's, and their memory the
        // test's.
        unsafe { (api().ncclReshard)(null_mut(), comm.as_raw(), src.raw(), dst.raw(), null_mut()) }
    };
    ranks(4, |comm| {
        let class = FailureClass::UndefinedBehaviour;
        // Two destinations, then a source and a destination.
        for offsets in [[0, 8, 16, 23], [0, 8, 15, 24]] {
            refused(call(comm, offsets), ARGUMENT, class, &["dataPtr", "destination"]);
        }
        // Replicas of the source may be one tile, and neighbours may touch.
        ok(call(comm, [0, 0, 8, 16]));
    });
    assert_eq!(memory[24..], [7; 40]);
}

/// The lone rank of a communicator copies, in place if it is told to (M2N 2.5).
#[test]
fn one_rank_copies_to_itself() {
    for (src, dst) in [("{1}@0 [R] 3x4", "{1,1}@0 [S1,R] 3x4"), ("{1}@0 [S0] 3x4", "{1}@0 [R] 3x4")]
    {
        let case = Case::new(1, 2, src, dst);
        ranks(1, |comm| {
            case.run(comm);
            let mut tile = Tile::of(&case.bytes(&case.src, 0, pattern));
            let pointer = tile.pointer();
            for distance in [0, 4] {
                let mut src = Descriptor::new(&case.src, case.dtype, pointer);
                // SAFETY: the pointer stays within the memory of the tile, which has canaries
                // behind it.
                let mut dst =
                    Descriptor::new(&case.dst, case.dtype, unsafe { pointer.add(distance) });
                let comm = comm.as_raw();
                // SAFETY: the communicator is live; descriptors and tile outlive the call.
                ok(unsafe {
                    (api().ncclReshard)(null_mut(), comm, src.raw(), dst.raw(), null_mut())
                });
            }
            let expected = case.bytes(&case.src, 0, pattern);
            assert_eq!(tile.data()[4..], expected[..20]);
        });
    }
}

#[test]
fn a_rank_in_another_operation_fails_the_world() {
    let case = Case::plain(4);
    ranks(2, |comm| {
        let mut buffers = case.buffers(comm.rank(), pattern);
        let message = if comm.rank() == 0 {
            let code = case.call(comm.as_raw(), &mut buffers);
            assert!([USAGE, ncclResult_t::ncclRemoteError].contains(&code));
            assert!(last_text().contains("NCCL operation"), "{}", last_text());
            take_error().unwrap().to_string()
        } else {
            let mut all = [0_u8; 2];
            comm.all_gather(&[1_u8], &mut all, Stream::DEFAULT).unwrap_err().to_string()
        };
        assert!(message.contains("ncclReshard") && message.contains("ncclAllGather"), "{message}");
        // E28: from now on the communicator is not ready, which beats bounds.
        let mut outside = case.clone();
        outside.dst.dims = vec![3];
        let code = outside.call(comm.as_raw(), &mut buffers);
        assert_eq!(code, ncclResult_t::ncclRemoteError);
        assert!(last_text().contains("NCCL operation"), "{}", last_text());
        assert!(matches!(take_error(), Some(Error::PeerFailed { .. })));
    });
}

#[test]
fn a_rank_that_never_comes_is_named_after_the_time_out() {
    let config = CpuConfig::new().timeout(Duration::from_millis(150));
    let case = Case::new(3, 1, "{1}@0 [R] 4", "{1}@1 [R] 4");
    let barrier = std::sync::Barrier::new(3);
    let results = run_ranks(3, &config, |comm| {
        let code = (comm.rank() != 2).then(|| {
            let mut buffers = case.buffers(comm.rank(), pattern);
            (case.call(comm.as_raw(), &mut buffers), last_text(), take_error())
        });
        barrier.wait();
        Ok::<_, Error>(code)
    });
    for result in results.into_iter().take(2) {
        let (code, text, error) = result.unwrap().unwrap();
        assert_eq!(code, ncclResult_t::ncclTimeout);
        assert!(text.contains("NCCL operation") && text.contains("rank 2"), "{text}");
        assert!(matches!(error, Some(Error::Timeout { ranks, .. }) if ranks == [2]));
    }
}

#[test]
fn a_panicking_rank_fails_its_peers_at_once() {
    let case = Case::new(4, 1, "{2}@0 [S0] 4", "{2}@2 [S0] 4");
    let results = run_ranks(4, &config(), |comm| {
        case.run(&comm);
        assert!(comm.rank() != 1, "rank 1 has had enough");
        let mut buffers = case.buffers(comm.rank(), pattern);
        let code = case.call(comm.as_raw(), &mut buffers);
        Ok::<_, Error>((code, take_error(), last_refusal()))
    });
    for (rank, result) in results.into_iter().enumerate() {
        if rank == 1 {
            assert!(matches!(result, Err(RankFailure::Panic(text)) if text.contains("enough")));
            continue;
        }
        let (code, error, class) = result.unwrap();
        assert_eq!((code, class), (ncclResult_t::ncclRemoteError, None));
        // No time-out.
        assert!(matches!(error, Some(Error::PeerFailed { rank: 1, .. })), "{error:?}");
    }
}

/// The same when its peers wait for it in a group of another communicator.
#[test]
fn a_failed_communicator_stops_a_group() {
    let case = Case::plain(4);
    let id = unique_id(&config());
    let results = run_ranks(2, &config(), |comm| {
        let other = Comm::init_rank(backend(), 2, &id, comm.rank())?;
        if comm.rank() == 1 {
            drop(other);
            return Ok::<_, Error>(());
        }
        let mut buffers = [(); 3].map(|()| case.buffers(0, pattern));
        group_start();
        let [first, second, third] = &mut buffers;
        ok(case.call(other.as_raw(), first));
        ok(case.call(comm.as_raw(), second));
        ok(case.call(other.as_raw(), third));
        assert_eq!(group_end(), ncclResult_t::ncclRemoteError);
        assert!(last_text().contains("ncclM2nGroupEnd: entry 0 of 3 failed"), "{}", last_text());
        assert!(matches!(take_error(), Some(Error::PeerFailed { rank: 1, .. })));
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}
