//! Ranks that do not come, leave, fail, or do something else than their peers.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Error, Reduction, Stream, UniqueId};
use nccl_ext_cpu::{CpuConfig, FailureClass, RankFailure, backend, run_ranks, unique_id};

fn short() -> CpuConfig {
    CpuConfig::new().timeout(Duration::from_millis(60))
}

/// A time-out that no test waits for: whoever gets it has not been told of a failure.
fn long() -> CpuConfig {
    CpuConfig::new().timeout(Duration::from_secs(60))
}

fn sum(comm: &Comm) -> Result<i32, Error> {
    let mut total = [0];
    comm.all_reduce(&[comm.rank() as i32], &mut total, Reduction::Sum, Stream::DEFAULT)?;
    Ok(total[0])
}

fn failure<T>(result: &Result<T, RankFailure<Error>>) -> &Error {
    match result {
        Err(RankFailure::Error(error)) => error,
        Err(RankFailure::Panic(message)) => panic!("{message}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[test]
fn a_rank_that_never_joins_is_named() {
    let id = unique_id(&short());
    let start = Instant::now();
    let results: Vec<_> = std::thread::scope(|scope| {
        let join = |rank| scope.spawn(move || Comm::init_rank(backend(), 4, &id, rank).map(drop));
        let threads: Vec<_> = [0, 2].map(join).into_iter().collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(start.elapsed() < Duration::from_secs(10));
    for result in results {
        let Err(Error::Timeout { phase: "ncclCommInitRank", ranks, waited }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(ranks, [1, 3]);
        assert!(waited >= Duration::from_millis(60));
    }
    // Who comes late hears what became of the others.
    let late = Comm::init_rank(backend(), 4, &id, 1).map(drop).unwrap_err();
    let Error::PeerFailed { error, .. } = late else { panic!("{late}") };
    assert!(matches!(&*error, Error::Timeout { .. }), "{error}");
}

#[test]
fn a_rank_that_never_arrives_is_named_and_the_world_has_failed() {
    let late = AtomicUsize::new(0);
    let results = run_ranks(3, &short(), |comm| {
        if comm.rank() == 1 {
            // It has not left: it is busy with something else.
            while late.load(Ordering::Acquire) < 2 {
                std::thread::yield_now();
            }
            return sum(&comm);
        }
        let result = sum(&comm);
        late.fetch_add(1, Ordering::AcqRel);
        result
    });
    for rank in [0, 2] {
        let Error::Timeout { phase: "ncclAllReduce", ranks, .. } = failure(&results[rank]) else {
            panic!("{results:?}");
        };
        assert_eq!(*ranks, [1]);
    }
    let Error::PeerFailed { rank: 0 | 2, error } = failure(&results[1]) else {
        panic!("{results:?}");
    };
    assert!(matches!(&**error, Error::Timeout { .. }));
}

#[test]
fn a_panicking_rank_is_reported_and_its_peers_get_an_error() {
    let results = run_ranks(4, &long(), |comm| {
        assert_ne!(comm.rank(), 2, "the bug");
        sum(&comm)
    });
    let Err(RankFailure::Panic(message)) = &results[2] else { panic!("{results:?}") };
    assert!(message.contains("the bug"));
    for rank in [0, 1, 3] {
        let Error::PeerFailed { rank: 2, error } = failure(&results[rank]) else {
            panic!("{results:?}");
        };
        assert_eq!(error.to_string(), "rank 2 panicked");
    }
}

#[test]
fn a_rank_that_returns_early_has_left() {
    let results = run_ranks(3, &long(), |comm| if comm.rank() == 0 { Ok(0) } else { sum(&comm) });
    for rank in [1, 2] {
        let Error::PeerFailed { rank: 0, error } = failure(&results[rank]) else {
            panic!("{results:?}");
        };
        assert!(error.to_string().contains("left the communicator"), "{error}");
    }
}

#[test]
fn destroy_is_leaving_too_and_waits_for_nobody() {
    let results = run_ranks(2, &long(), |comm| {
        let total = sum(&comm)?;
        comm.destroy()?;
        Ok::<_, Error>(total)
    });
    assert!(results.iter().all(|result| matches!(result, Ok(1))), "{results:?}");
    let results = run_ranks(2, &long(), |comm| {
        if comm.rank() == 0 {
            comm.destroy()?;
            return Ok(0);
        }
        sum(&comm)
    });
    let Error::PeerFailed { rank: 0, error } = failure(&results[1]) else { panic!("{results:?}") };
    assert!(error.to_string().contains("ncclCommDestroy"), "{error}");
}

#[test]
fn leaving_after_the_last_barrier_harms_nobody() {
    for round in 0..200 {
        let results = run_ranks(3, &long(), |comm| {
            let total = sum(&comm)?;
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
    let results = run_ranks(3, &long(), |comm| {
        if comm.rank() == 1 {
            comm.fail(&Error::RankGone { reason: "first".into() });
            comm.fail(&Error::RankGone { reason: "second".into() });
        }
        let once = sum(&comm);
        assert_eq!(once.unwrap_err().to_string(), sum(&comm).unwrap_err().to_string());
        sum(&comm)
    });
    for result in &results {
        assert_eq!(failure(result).to_string(), "rank 1 failed: first");
    }
}

fn detail(error: &Error) -> String {
    match error {
        Error::Native { code: ncclResult_t::ncclInvalidUsage, detail, .. } => detail.clone(),
        Error::PeerFailed { error, .. } => detail(error),
        other => panic!("{other}"),
    }
}

#[test]
fn mismatched_operations_name_both() {
    let results = run_ranks(2, &long(), |comm| {
        if comm.rank() == 0 {
            return sum(&comm).map(drop);
        }
        let (mut all, stream) = ([0_i32; 2], Stream::DEFAULT);
        comm.all_gather(&[1_i32], &mut all, stream)
    });
    for result in &results {
        let detail = detail(failure(result));
        assert!(detail.contains("ncclAllReduce") && detail.contains("ncclAllGather"), "{detail}");
        assert!(detail.contains("rank 0 is in") || detail.contains("rank 1 is in"), "{detail}");
    }
}

#[test]
fn mismatched_counts_are_named() {
    let results = run_ranks(3, &long(), |comm| {
        let count = 4 + usize::from(comm.rank() == 2);
        let (send, mut recv) = (vec![1_i64; count], vec![0_i64; count]);
        comm.all_reduce(&send, &mut recv, Reduction::Max, Stream::DEFAULT)
    });
    for result in &results {
        let detail = detail(failure(result));
        assert!(detail.contains("count 4") && detail.contains("count 5"), "{detail}");
    }
}

#[test]
fn dispatch_meets_combine() {
    for layout in [FLAT, EM] {
        let results = run_ranks(2, &long(), |comm| {
            let ht = Ht::new(&comm, G2, layout);
            let code = match comm.rank() {
                0 => ht.dispatch_into(16).call(&ht.handle),
                _ => ht.combine_of(&[0.0; 16]).call(&ht.handle),
            };
            assert_ne!(code, OK);
            Err::<(), _>(error().unwrap())
        });
        for result in &results {
            let detail = detail(failure(result));
            assert!(detail.contains("ncclEpDispatch") && detail.contains("ncclEpCombine"));
        }
    }
}

#[test]
fn low_latency_meets_a_collective() {
    let results = run_ranks(2, &long(), |comm| {
        let ll = Ll::new(&comm, G2, EM);
        let error = if comm.rank() == 0 {
            assert_ne!(ll.dispatch_call(WIDE).call(&ll.handle), OK);
            common::error()
        } else {
            sum(&comm).err()
        };
        // The group cannot be destroyed any more: its peers are out of step.
        let Ll { handle, group, .. } = ll;
        drop(handle);
        std::mem::forget(group);
        Err::<(), _>(error.unwrap())
    });
    for result in &results {
        let detail = detail(failure(result));
        assert!(detail.contains("ncclEpDispatch") && detail.contains("ncclAllReduce"), "{detail}");
    }
}

#[test]
fn handles_of_other_updates_do_not_meet() {
    // Rank 0 dispatches the first of two handles, rank 1 the second: their maps differ.
    let results = run_ranks(2, &long(), |comm| {
        let first = Ht::new(&comm, G2, FLAT);
        let second = first.group.handle(FLAT, 2, 0);
        let mut ids = Ten::filled(&[4, 2], 0_i64);
        ok(update_with(&second, &mut ids, std::ptr::null()));
        let handle = if comm.rank() == 0 { &first.handle } else { &second };
        let code = first.dispatch_into(16).call(handle);
        let error = error();
        drop(second);
        if code == OK { Ok(()) } else { Err(error.unwrap()) }
    });
    for result in &results {
        assert!(detail(failure(result)).contains("update"), "{results:?}");
    }
}

#[test]
fn a_second_rank_of_the_same_number_and_another_size_are_refused() {
    let id = unique_id(&long());
    let join = |size, rank| Comm::init_rank(backend(), size, &id, rank).map(drop);
    std::thread::scope(|scope| {
        // Of two that come as rank 0 one is refused; the other has come before it.
        let threads = [(); 2].map(|()| scope.spawn(|| join(2, 0)));
        while threads.iter().all(|thread| !thread.is_finished()) {
            std::thread::yield_now();
        }
        let error = join(3, 1).unwrap_err().to_string();
        assert!(error.contains("the same number of ranks; expected 2, found 3"), "{error}");
        join(2, 1).unwrap();
        let results = threads.map(|thread| thread.join().unwrap());
        let refused = results.iter().position(Result::is_err).unwrap();
        assert!(results[1 - refused].is_ok(), "{results:?}");
        let error = results[refused].as_ref().unwrap_err().to_string();
        assert!(error.contains("every rank joins once"), "{error}");
    });
}

#[test]
fn ids_of_others_are_refused() {
    let id = UniqueId::from_bytes([3; UniqueId::BYTES]);
    let error = Comm::init_rank(backend(), 1, &id, 0).map(drop).unwrap_err();
    assert!(error.to_string().contains("an id of ncclGetUniqueId"), "{error}");
    assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Return));
    let id = UniqueId::new(backend()).unwrap();
    let error = Comm::init_rank(backend(), 1 << 30, &id, 0).map(drop).unwrap_err();
    assert!(error.to_string().contains("nranks <= 4096"), "{error}");
    Comm::init_rank(backend(), 1, &id, 0).unwrap();
}

#[test]
fn many_worlds_live_side_by_side() {
    std::thread::scope(|scope| {
        for size in 1..6 {
            scope.spawn(move || {
                let results = run_ranks(size, &long(), |comm| {
                    for _ in 0..50 {
                        assert_eq!(sum(&comm)?, (size * (size - 1) / 2) as i32);
                    }
                    Ok::<_, Error>(())
                });
                assert!(results.iter().all(Result::is_ok));
            });
        }
    });
}

#[test]
fn errors_are_taken_once_and_success_clears_them() {
    ranks(1, |comm| {
        // SAFETY: a null pointer is refused before anything is written.
        let null = || unsafe { (api().ncclEpGetVersion)(std::ptr::null_mut()) };
        assert_ne!(null(), OK);
        assert!(error().is_some());
        assert!(error().is_none());
        assert_ne!(null(), OK);
        sum(comm).unwrap();
        assert!(error().is_none());
        assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Return));
    });
}

#[test]
fn an_abort_from_another_thread_ends_the_wait() {
    let (raw, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = run_ranks(2, &long(), |comm| {
        if comm.rank() == 0 {
            raw.store(comm.as_raw().expose_provenance(), Ordering::Release);
            let result = sum(&comm);
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
        ok(unsafe { abort(std::ptr::with_exposed_provenance_mut(address)) });
        while !ended.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        // What rank 0 had shown is gone with it.
        sum(&comm)
    });
    let error = failure(&results[0]).to_string();
    assert!(error.starts_with("rank 0 left the communicator"), "{error}");
    let error = failure(&results[1]).to_string();
    assert!(error.starts_with("rank 0 failed: rank 0 left the communicator"), "{error}");
}

#[test]
fn a_staged_send_hears_of_a_failed_peer() {
    let results = run_ranks(2, &long(), |comm| {
        let ll = Ll::new(&comm, G2, EM);
        if comm.rank() == 1 {
            comm.fail(&Error::RankGone { reason: "no dispatch".into() });
        } else {
            let mut call = ll.dispatch_call(WIDE);
            let mut config = nccl_ep_sys::ncclEpDispatchConfig_t::default();
            (config.size, config.magic) = (24, nccl_ep_sys::NCCL_EP_MAGIC);
            config.send_only = 1;
            call.config = Some(config);
            // Sending waits for nobody, but may already know.
            if call.call(&ll.handle) == OK {
                let (config, stream) = (std::ptr::null(), std::ptr::null_mut());
                // SAFETY: the handle is live; no configuration and the null stream.
                let code = unsafe { (api().ncclEpComplete)(ll.handle.raw, config, stream) };
                assert_eq!(code, ncclResult_t::ncclRemoteError);
            }
            let error = error().unwrap().to_string();
            assert_eq!(error, "rank 1 failed: no dispatch");
        }
        // A group of a failed world is left as it is.
        let Ll { handle, group, .. } = ll;
        drop(handle);
        // SAFETY: the group is live, and a refusal leaves it so.
        let code = unsafe { (api().ncclEpGroupDestroy)(group.raw) };
        assert_eq!(code, ncclResult_t::ncclRemoteError);
        std::mem::forget(group);
        Ok::<_, Error>(())
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}
