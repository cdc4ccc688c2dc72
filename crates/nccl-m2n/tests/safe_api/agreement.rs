//! What ranks exchange before a reshard, over stub tables.

use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_test::stub::m2n as stub;
use nccl_ext_test::worlds::STREAM;
use nccl_m2n::{Agreement, DistTensor, DistTensorMut, Error, MemorySpace};

use crate::stub_runtime::{layouts, send, setup};

#[test]
fn ranks_compare_as_often_as_they_are_told() {
    for (agreement, exchanges) in
        [(Agreement::Off, 0), (Agreement::PerShape, 1), (Agreement::EveryCall, 3)]
    {
        let (runtime, comm, tile) = setup(MemorySpace::Host, agreement);
        for _ in 0..3 {
            send(&runtime, &comm, &tile).unwrap();
        }
        let calls = stub::take_calls();
        let count = calls.iter().filter(|call| **call == "ncclAllGather").count();
        assert_eq!(count, exchanges, "{agreement:?}");
        // A group is another thing than its call.
        let (source, destination) = layouts();
        for _ in 0..2 {
            runtime
                .group(|group| {
                    let from = DistTensor::new(&tile, &source);
                    group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)
                })
                .unwrap();
        }
        let count = stub::take_calls().iter().filter(|call| **call == "ncclAllGather").count();
        let expected = [0, 1, 2][[0, 1, 3].iter().position(|n| *n == exchanges).unwrap()];
        assert_eq!(count, expected, "{agreement:?}");
    }
}

#[test]
fn a_failure_of_another_rank_comes_with_its_rule_and_leaves_all_in_step() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::EveryCall);
    stub::set_peers(|rank, words| {
        if rank == 3 {
            // Destination memory is missing there.
            let rules = nccl_m2n::rules();
            let place = rules.into_iter().position(|r| r.name == "local.destination-memory");
            words[0] = place.unwrap() as u64 + 2;
        }
    });
    let error = send(&runtime, &comm, &tile).unwrap_err();
    let Error::PeerFailed { rank: 3, error } = &error else { panic!("{error:?}") };
    assert!(error.to_string().contains("a rank of the destination mesh passes its tile"));
    assert_eq!(stub::take_calls(), ["ncclAllGather"]);
    stub::set_peers(|_, _| ());
    send(&runtime, &comm, &tile).unwrap();
    assert!(!comm.is_marked_for_abort());
}

#[test]
fn an_own_failure_is_told_and_leaves_all_in_step() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::EveryCall);
    let (source, destination) = layouts();
    let mut to = DistTensorMut::inactive(&destination);
    let error = runtime.reshard(&comm, &DistTensor::inactive(&source), &mut to, STREAM);
    assert!(error.unwrap_err().to_string().contains("source mesh passes its tile"));
    assert_eq!(stub::take_calls(), ["ncclAllGather"]);
    assert!(!comm.is_marked_for_abort());
    let error = runtime.group(|group| {
        let from = DistTensor::new(&tile, &source);
        group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)?;
        let none = DistTensor::inactive(&source);
        group.reshard(&comm, none, DistTensorMut::inactive(&destination), STREAM)
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Entry { index: 1, .. }), "{error:?}");
    let calls = ["ncclM2nGroupStart", "ncclReshard", "ncclAllGather", "ncclM2nGroupAbort"];
    assert_eq!(stub::take_calls(), calls);
    send(&runtime, &comm, &tile).unwrap();
}

/// Case M7.
#[test]
fn ranks_that_mean_different_things_hear_the_first_difference() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::PerShape);
    stub::set_peers(|rank, words| {
        if rank == 2 {
            match words.len() {
                4 => words[1] ^= 1,     // another digest
                n => words[n - 4] += 4, // other destination extents
            }
        }
    });
    let error = send(&runtime, &comm, &tile).unwrap_err();
    stub::set_peers(|_, _| ());
    let Error::DigestMismatch { rank: 2, first_difference } = &error else { panic!("{error:?}") };
    assert_eq!(first_difference, "call 0, destination local_shape: [4] on rank 0, [8] on rank 2");
    assert_eq!(stub::take_calls(), ["ncclAllGather", "ncclAllGather"]);
    send(&runtime, &comm, &tile).unwrap();
}

#[test]
fn an_exchange_that_fails_leaves_this_rank_behind() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::PerShape);
    stub::fail_next("ncclAllGather", ncclResult_t::ncclRemoteError);
    let error = send(&runtime, &comm, &tile).unwrap_err();
    let Error::Native { call: "ncclAllGather", code: ncclResult_t::ncclRemoteError, .. } = error
    else {
        panic!("{error:?}")
    };
    assert!(matches!(send(&runtime, &comm, &tile), Err(Error::Diverged { .. })));
    assert!(matches!(*runtime.finalize().unwrap_err().error, Error::Diverged { .. }));
}
