//! Ranks that do not come, fail, or do something else than their peers (M2N 2.7, 4.2).

use std::time::Duration;

use nccl_ext_core::raw::ncclDataType_t;
use nccl_ext_core::{Comm, Error, Stream};
use nccl_ext_cpu::{
    CpuConfig, FailureClass, RankFailure, backend, last_refusal, run_ranks, unique_id,
};
use nccl_ext_test::cpu::m2n::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;
use nccl_ext_test::worlds::config;

/// What one rank changes about a call that it shares with the others.
type Change = fn(&mut ReshardCase);

/// What differs as every rank is told it, and how one rank changes the call. Each is a valid call by
/// itself, on a communicator of 6.
const CHANGES: [(&str, &[&str], Change); 9] = [
    ("fewer rows", &["src localShape", "[3, 4, 0]"], |c| {
        c.src.shape = vec![3, 4];
        c.dst.shape = vec![6, 2];
    }),
    ("more destinations", &["dst mesh dims", "[4, 1]"], |c| {
        c.dst.dims = vec![4];
        c.dst.shape = vec![12, 1];
    }),
    ("another first destination", &["dst mesh startRank", "[3]"], |c| c.dst.start = 3),
    ("another first source", &["src mesh startRank", "[2]"], |c| {
        c.dst.start = 4;
        c.src.start = 2;
    }),
    ("another sharded axis", &["src", "[12, 2, 0]"], |c| {
        c.src.placements = vec![1];
        c.src.shape = vec![12, 2];
    }),
    ("another type", &["dtype", "int8"], |c| c.dtype = ncclDataType_t::ncclInt8),
    ("an axis more", &["src localShape", "[6, 4, 1]"], |c| {
        c.src.shape.push(1);
        c.dst.shape.push(1);
    }),
    // The first difference in the normal form (M2N 2.2) is an extent of the mesh or of the shape.
    ("replicas", &[], |c| {
        c.src.shape = vec![1, 2];
        c.dst.shape = vec![1, 2];
        (c.src.placements, c.dst.placements) = (vec![-1], vec![-1]);
    }),
    ("the mesh turned", &["src mesh dims", "[1, 2]"], |c| {
        c.src.dims = vec![1, 2];
        c.src.placements = vec![-1, 0];
    }),
];

#[test]
fn ranks_that_ask_for_different_transfers_all_hear_of_it() {
    let base = ReshardCase::new(6, 1, "{2}@0 [S0] 6x4", "{2}@2 [S1] 12x2");
    // Also the rank that is in no mesh must agree; ranks take turns to differ.
    let rows = CHANGES.into_iter().zip([1, 2, 3, 4, 5].into_iter().cycle());
    let rows = rows.map(|((name, words, change), odd)| (name, (words, change, odd)));
    check_rows(rows, |(words, change, odd)| {
        every_rank(6, |comm| {
            let mut case = base.clone();
            if comm.rank() == odd {
                change(&mut case);
            }
            let mut tiles = case.pattern_tiles(comm.rank());
            let code = case.call(comm, &mut tiles);
            let odd = format!("rank {odd}");
            let words = [words, &[&odd, "rank 0"]].concat();
            assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour, &words);
            // Nothing moved, and the ranks are still in step.
            tiles.assert_untouched();
            base.run(comm);
        });
    });
}

/// M2N vectors E33 and E34: the rank without a tile knows, the others would wait for ever.
#[test]
fn a_missing_tile_fails_all_ranks() {
    let case = ReshardCase::new(3, 1, "{1}@0 [R] 4", "{1}@1 [R] 4");
    check_rows([("source", 0), ("destination", 1)].map(|row| (row.0, row)), |(role, missing)| {
        every_rank(3, |comm| {
            let mut tiles = case.pattern_tiles(comm.rank());
            if missing == 0 {
                tiles.src = None;
            } else {
                tiles.dst = None;
            }
            let code = case.call(comm, &mut tiles);
            let class = match comm.rank() == missing {
                true => FailureClass::Return,
                false => FailureClass::UndefinedBehaviour,
            };
            let words = format!("active {role} rank {missing}");
            assert_refused(code, INVALID_ARGUMENT, class, &[&words]);
            case.run(comm);
        });
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
    let case = ReshardCase::new(4, 1, "{2}@0 [R] 8", "{2}@2 [R] 8");
    let call = |comm: &Comm, offsets: [usize; 4]| {
        let data = shared.at(offsets[comm.rank()]);
        let mut src = OwnedDescriptor::new(&case.src, case.dtype, data);
        let mut dst = OwnedDescriptor::new(&case.dst, case.dtype, data);
        // SAFETY: the communicator is live; the descriptors are this frame's, and their memory the
        // test's.
        unsafe { reshard(comm.as_raw(), src.raw(), dst.raw()) }
    };
    every_rank(4, |comm| {
        let class = FailureClass::UndefinedBehaviour;
        // Two destinations, then a source and a destination.
        for offsets in [[0, 8, 16, 23], [0, 8, 15, 24]] {
            let code = call(comm, offsets);
            assert_refused(code, INVALID_ARGUMENT, class, &["dataPtr", "destination"]);
        }
        // Replicas of the source may be one tile, and neighbours may touch.
        assert_ok(call(comm, [0, 0, 8, 16]));
    });
    assert_eq!(memory[24..], [7; 40]);
}

#[test]
fn a_rank_in_another_operation_fails_the_world() {
    let case = ReshardCase::plain(4);
    every_rank(2, |comm| {
        let mut tiles = case.pattern_tiles(comm.rank());
        let message = if comm.rank() == 0 {
            let code = case.call(comm, &mut tiles);
            assert!([INVALID_USAGE, REMOTE_ERROR].contains(&code));
            assert!(last_text().contains("NCCL operation"), "{}", last_text());
            take_error().unwrap().to_string()
        } else {
            let mut all = [0_u8; 2];
            comm.all_gather(&[1_u8], &mut all, Stream::DEFAULT).unwrap_err().to_string()
        };
        assert!(message.contains("ncclReshard") && message.contains("ncclAllGather"), "{message}");
        // M2N vector E28: from now on the communicator is not ready, which beats bounds.
        let mut outside = case.clone();
        outside.dst.dims = vec![3];
        let code = outside.call(comm, &mut tiles);
        assert_eq!(code, REMOTE_ERROR);
        assert!(last_text().contains("NCCL operation"), "{}", last_text());
        assert!(matches!(take_error(), Some(Error::PeerFailed { .. })));
    });
}

#[test]
fn a_rank_that_never_comes_is_named_after_the_time_out() {
    let config = CpuConfig::new().timeout(Duration::from_millis(150));
    let case = ReshardCase::new(3, 1, "{1}@0 [R] 4", "{1}@1 [R] 4");
    let barrier = std::sync::Barrier::new(3);
    let results = run_ranks(3, &config, |comm| {
        let code = (comm.rank() != 2).then(|| {
            let mut tiles = case.pattern_tiles(comm.rank());
            (case.call(&comm, &mut tiles), last_text(), take_error())
        });
        barrier.wait();
        Ok::<_, Error>(code)
    });
    for result in results.into_iter().take(2) {
        let (code, text, error) = result.unwrap().unwrap();
        assert_eq!(code, TIMED_OUT);
        assert!(text.contains("NCCL operation") && text.contains("rank 2"), "{text}");
        assert!(matches!(error, Some(Error::Timeout { ranks, .. }) if ranks == [2]));
    }
}

#[test]
fn a_panicking_rank_fails_its_peers_at_once() {
    let case = ReshardCase::new(4, 1, "{2}@0 [S0] 4", "{2}@2 [S0] 4");
    let results = run_ranks(4, &config(), |comm| {
        case.run(&comm);
        assert!(comm.rank() != 1, "rank 1 has had enough");
        let mut tiles = case.pattern_tiles(comm.rank());
        let code = case.call(&comm, &mut tiles);
        Ok::<_, Error>((code, take_error(), last_refusal()))
    });
    for (rank, result) in results.into_iter().enumerate() {
        if rank == 1 {
            assert!(matches!(result, Err(RankFailure::Panic(text)) if text.contains("enough")));
            continue;
        }
        let (code, error, class) = result.unwrap();
        assert_eq!((code, class), (REMOTE_ERROR, None));
        // No time-out.
        assert!(matches!(error, Some(Error::PeerFailed { rank: 1, .. })), "{error:?}");
    }
}

/// The same when its peers wait for it in a group of another communicator.
#[test]
fn a_failed_communicator_stops_a_group() {
    let case = ReshardCase::plain(4);
    let id = unique_id(&config());
    let results = run_ranks(2, &config(), |comm| {
        let other = Comm::init_rank(backend(), 2, &id, comm.rank())?;
        if comm.rank() == 1 {
            drop(other);
            return Ok::<_, Error>(());
        }
        let mut tiles = [(); 3].map(|()| case.pattern_tiles(0));
        group_start();
        let [first, second, third] = &mut tiles;
        assert_ok(case.call(&other, first));
        assert_ok(case.call(&comm, second));
        assert_ok(case.call(&other, third));
        assert_eq!(group_end(), REMOTE_ERROR);
        assert!(last_text().contains("ncclM2nGroupEnd: entry 0 of 3 failed"), "{}", last_text());
        assert!(matches!(take_error(), Some(Error::PeerFailed { rank: 1, .. })));
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}
