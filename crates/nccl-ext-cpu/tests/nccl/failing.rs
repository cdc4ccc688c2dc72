//! Ranks that do not come, leave, fail, or do something else than their peers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nccl_ext_core::{Error, Reduction, Stream};
use nccl_ext_cpu::{RankFailure, backend, run_ranks};
use nccl_ext_test::cpu::ep::assert_ok;
use nccl_ext_test::cpu::*;
use nccl_ext_test::worlds::error_of;

use super::{impatient, rank_sum};

#[test]
fn a_rank_that_never_arrives_is_named_and_the_world_has_failed() {
    let late = AtomicUsize::new(0);
    let results = run_ranks(3, &impatient(), |comm| {
        if comm.rank() == 1 {
            // It has not left: it is busy with something else.
            while late.load(Ordering::Acquire) < 2 {
                std::thread::yield_now();
            }
            return rank_sum(&comm);
        }
        let result = rank_sum(&comm);
        late.fetch_add(1, Ordering::AcqRel);
        result
    });
    for rank in [0, 2] {
        let Error::Timeout { phase: "ncclAllReduce", ranks, .. } = error_of(&results[rank]) else {
            panic!("{results:?}");
        };
        assert_eq!(*ranks, [1]);
    }
    let Error::PeerFailed { rank: 0 | 2, error } = error_of(&results[1]) else {
        panic!("{results:?}");
    };
    assert!(matches!(&**error, Error::Timeout { .. }));
}

#[test]
fn a_panicking_rank_is_reported_and_its_peers_get_an_error() {
    let results = run_ranks(4, &patient(), |comm| {
        assert_ne!(comm.rank(), 2, "the bug");
        rank_sum(&comm)
    });
    let Err(RankFailure::Panic(message)) = &results[2] else { panic!("{results:?}") };
    assert!(message.contains("the bug"));
    for rank in [0, 1, 3] {
        let Error::PeerFailed { rank: 2, error } = error_of(&results[rank]) else {
            panic!("{results:?}");
        };
        assert_eq!(error.to_string(), "rank 2 panicked");
    }
}

#[test]
fn a_rank_that_returns_early_has_left() {
    let results =
        run_ranks(3, &patient(), |comm| if comm.rank() == 0 { Ok(0) } else { rank_sum(&comm) });
    for rank in [1, 2] {
        let Error::PeerFailed { rank: 0, error } = error_of(&results[rank]) else {
            panic!("{results:?}");
        };
        assert!(error.to_string().contains("left the communicator"), "{error}");
    }
}

#[test]
fn destroy_is_leaving_too_and_waits_for_nobody() {
    let results = run_ranks(2, &patient(), |comm| {
        let total = rank_sum(&comm)?;
        comm.destroy()?;
        Ok::<_, Error>(total)
    });
    assert!(results.iter().all(|result| matches!(result, Ok(1))), "{results:?}");
    let results = run_ranks(2, &patient(), |comm| {
        if comm.rank() == 0 {
            comm.destroy()?;
            return Ok(0);
        }
        rank_sum(&comm)
    });
    let Error::PeerFailed { rank: 0, error } = error_of(&results[1]) else { panic!("{results:?}") };
    assert!(error.to_string().contains("ncclCommDestroy"), "{error}");
}

#[test]
fn leaving_after_the_last_barrier_harms_nobody() {
    for round in 0..200 {
        let results = run_ranks(3, &patient(), |comm| {
            let total = rank_sum(&comm)?;
            // One leaves at once, one fails: the others have succeeded in any case.
            if comm.rank() == round % 3 {
                comm.fail(&Error::RankGone { reason: "after the end".into() });
            }
            Ok::<_, Error>(total)
        });
        assert!(results.iter().all(|result| matches!(result, Ok(3))), "{results:?}");
    }
}

#[test]
fn the_first_failure_is_the_one_that_peers_hear_of() {
    let results = run_ranks(3, &patient(), |comm| {
        if comm.rank() == 1 {
            comm.fail(&Error::RankGone { reason: "first".into() });
            comm.fail(&Error::RankGone { reason: "second".into() });
        }
        let once = rank_sum(&comm);
        assert_eq!(once.unwrap_err().to_string(), rank_sum(&comm).unwrap_err().to_string());
        rank_sum(&comm)
    });
    for result in &results {
        assert_eq!(error_of(result).to_string(), "rank 1 failed: first");
    }
}

#[test]
fn mismatched_operations_name_both() {
    let results = run_ranks(2, &patient(), |comm| {
        if comm.rank() == 0 {
            return rank_sum(&comm).map(drop);
        }
        let (mut all, stream) = ([0_i32; 2], Stream::DEFAULT);
        comm.all_gather(&[1_i32], &mut all, stream)
    });
    for result in &results {
        let detail = usage_detail(error_of(result));
        assert!(detail.contains("ncclAllReduce") && detail.contains("ncclAllGather"), "{detail}");
        assert!(detail.contains("rank 0 is in") || detail.contains("rank 1 is in"), "{detail}");
    }
}

#[test]
fn mismatched_counts_are_named() {
    let results = run_ranks(3, &patient(), |comm| {
        let count = 4 + usize::from(comm.rank() == 2);
        let (send, mut recv) = (vec![1_i64; count], vec![0_i64; count]);
        comm.all_reduce(&send, &mut recv, Reduction::Max, Stream::DEFAULT)
    });
    for result in &results {
        let detail = usage_detail(error_of(result));
        assert!(detail.contains("count 4") && detail.contains("count 5"), "{detail}");
    }
}

#[test]
fn an_abort_from_another_thread_ends_the_wait() {
    let (raw, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = run_ranks(2, &patient(), |comm| {
        if comm.rank() == 0 {
            raw.store(comm.as_raw().expose_provenance(), Ordering::Release);
            let result = rank_sum(&comm);
            // Rank 1 has aborted it already.
            std::mem::forget(comm);
            ended.store(true, Ordering::Release);
            return result;
        }
        let mut address = 0;
        while address == 0 {
            address = raw.load(Ordering::Acquire);
        }
        std::thread::sleep(Duration::from_millis(20));
        let abort = backend().nccl().ncclCommAbort;
        // SAFETY: the address is of the live communicator that the other rank has shown.
        assert_ok(unsafe { abort(std::ptr::with_exposed_provenance_mut(address)) });
        while !ended.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        // What rank 0 had shown is gone with it.
        rank_sum(&comm)
    });
    let error = error_of(&results[0]).to_string();
    assert!(error.starts_with("rank 0 left the communicator"), "{error}");
    let error = error_of(&results[1]).to_string();
    assert!(error.starts_with("rank 0 failed: rank 0 left the communicator"), "{error}");
}
