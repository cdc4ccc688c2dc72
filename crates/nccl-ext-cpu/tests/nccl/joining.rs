//! Ranks that join a world, and worlds side by side.

use std::time::{Duration, Instant};

use nccl_ext_core::{Comm, Error, UniqueId};
use nccl_ext_cpu::{FailureClass, backend, last_refusal, run_ranks, unique_id};
use nccl_ext_test::cpu::*;

use super::{impatient, rank_sum};

#[test]
fn a_rank_that_never_joins_is_named() {
    let id = unique_id(&impatient());
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
fn a_second_rank_of_the_same_number_and_another_size_are_refused() {
    let id = unique_id(&patient());
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
    assert_eq!(last_refusal(), Some(FailureClass::Return));
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
                let results = run_ranks(size, &patient(), |comm| {
                    for _ in 0..50 {
                        assert_eq!(rank_sum(&comm)?, (size * (size - 1) / 2) as i32);
                    }
                    Ok::<_, Error>(())
                });
                assert!(results.iter().all(Result::is_ok), "{results:?}");
            });
        }
    });
}
