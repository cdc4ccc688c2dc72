//! Runtimes, groups and agreement over stub tables: which native calls are made, and when.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_test::stub::m2n as stub;
use nccl_m2n::Placement::{Replicate, Shard};
use nccl_m2n::{
    Agreement, Buffer, Comm, Config, DataType, DistTensor, DistTensorMut, Error, Layout,
    MemorySpace, Mesh, Result, Runtime, Stream, Window, finalize_default, last_error,
};

const STREAM: Stream<'static> = Stream::DEFAULT;

fn config(agreement: Agreement) -> Config {
    Config::new().agreement(agreement)
}

/// Ranks 0 and 1 to ranks 2 and 3.
fn layouts() -> (Layout, Layout) {
    let mesh = |start| Mesh::new(&[2], start).unwrap();
    let source = Layout::new(mesh(0), &[Shard(0)], &[2], DataType::Uint8).unwrap();
    (source, source.on(mesh(2), &[Replicate]).unwrap())
}

/// Rank 0 sends its tile.
fn send(runtime: &Runtime, comm: &Comm, tile: &Buffer<u8>) -> Result<()> {
    let (source, destination) = layouts();
    let mut to = DistTensorMut::inactive(&destination);
    runtime.reshard(comm, &DistTensor::new(tile, &source), &mut to, STREAM)
}

fn setup(memory: MemorySpace, agreement: Agreement) -> (Runtime, Comm, Buffer<u8>) {
    let backend = stub::backend(memory);
    let comm = stub::comm_on(backend, 4, 0);
    let runtime = Runtime::new(backend, &config(agreement)).unwrap();
    let tile = Buffer::<u8>::zeroed(&comm, 2).unwrap();
    stub::take_calls();
    (runtime, comm, tile)
}

#[test]
fn init_comes_first_and_finalize_last() {
    let backend = stub::backend(MemorySpace::Host);
    let runtime = Runtime::new(backend, &config(Agreement::Off)).unwrap();
    assert_eq!(stub::take_calls(), ["ncclM2nInit"]);
    runtime.finalize().unwrap();
    assert_eq!(stub::take_calls(), ["ncclM2nFinalize"]);
    stub::fail_next("ncclM2nInit", ncclResult_t::ncclSystemError);
    let error = Runtime::new(backend, &Config::new()).unwrap_err();
    let words = "ncclM2nInit returned ncclSystemError (2): the stub's words";
    assert_eq!(error.to_string(), words);
    stub::take_calls();
    assert_eq!(last_error(backend).unwrap(), "the stub's words");
    // SAFETY: stubs have no default handle.
    unsafe { finalize_default(backend).unwrap() };
    assert_eq!(stub::take_calls(), ["ncclM2nFinalize"]);
}

#[test]
fn a_backend_without_the_library_says_so() {
    let builder = nccl_ext_core::Backend::builder("bare", MemorySpace::Host);
    // SAFETY: it has no functions.
    let backend = unsafe { builder.build() };
    let error = Runtime::new(backend, &Config::new()).unwrap_err();
    assert!(error.to_string().starts_with("libnccl_m2n.so is not offered by backend bare"));
}

#[test]
fn communicators_of_another_backend_are_refused() {
    let (runtime, _, _) = setup(MemorySpace::Host, Agreement::Off);
    let other = stub::comm(4);
    let (source, destination) = layouts();
    let mut to = DistTensorMut::inactive(&destination);
    let error = runtime.reshard(&other, &DistTensor::inactive(&source), &mut to, STREAM);
    assert!(error.unwrap_err().to_string().contains("belongs to the runtime's backend"));
}

#[test]
fn a_runtime_keeps_its_communicators_until_it_is_finalized() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    send(&runtime, &comm, &tile).unwrap();
    drop(tile);
    let comm = comm.destroy().unwrap_err().value.unwrap();
    runtime.finalize().unwrap();
    comm.destroy().unwrap();
    let calls = ["ncclReshard", "ncclM2nFinalize", "ncclCommFinalize", "ncclCommDestroy"];
    assert_eq!(stub::take_calls(), calls);
}

/// M2N 4.1: the library's caches are the process's, and last until its last handle is finalised.
#[test]
fn on_devices_communicators_are_kept_until_the_last_runtime_is_finalized() {
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    let other = Runtime::new(comm.backend(), &Config::new()).unwrap();
    send(&runtime, &comm, &tile).unwrap();
    drop(tile);
    runtime.finalize().unwrap();
    let comm = comm.destroy().unwrap_err().value.unwrap();
    other.finalize().unwrap();
    comm.destroy().unwrap();
}

#[test]
fn dropped_on_a_device_a_runtime_is_leaked_and_its_communicators_are_doomed() {
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    send(&runtime, &comm, &tile).unwrap();
    stub::take_calls();
    drop(runtime);
    assert_eq!(stub::take_calls(), [""; 0]);
    assert!(comm.is_doomed());
    // Another communicator at the same address would hit the caches of this one.
    let again = Runtime::new(comm.backend(), &Config::new()).unwrap();
    let error = send(&again, &comm, &tile).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    assert!(error.to_string().contains("address"), "{error}");
}

#[test]
fn dropped_on_a_host_a_runtime_is_finalized() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    send(&runtime, &comm, &tile).unwrap();
    stub::take_calls();
    drop(runtime);
    assert_eq!(stub::take_calls(), ["ncclM2nFinalize"]);
    drop(tile);
    comm.destroy().unwrap();
}

#[test]
fn windows_have_a_function_of_their_own() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    let (source, destination) = layouts();
    let from = DistTensor::new(&tile, &source);
    let mut to = DistTensorMut::inactive(&destination);
    runtime.reshard_with_window(&comm, Window::NONE, &from, &mut to, STREAM).unwrap();
    assert_eq!(stub::take_calls(), ["ncclReshardWithWindow"]);
    assert_eq!(stub::passed(), [true, false]);
}

/// Inactive ranks call too, and what they pass anyway is not looked at.
#[test]
fn ranks_outside_of_a_mesh_pass_no_memory() {
    let backend = stub::backend(MemorySpace::Host);
    let comm = stub::comm_on(backend, 5, 4);
    let runtime = Runtime::new(backend, &config(Agreement::Off)).unwrap();
    let tile = [0.0_f32];
    let (source, destination) = layouts();
    let mut other = [0.0_f32];
    let mut to = DistTensorMut::new(&mut other, &destination);
    runtime.reshard(&comm, &DistTensor::new(&tile, &source), &mut to, STREAM).unwrap();
    assert_eq!(stub::passed(), [false, false]);
}

#[test]
fn a_group_is_started_recorded_and_ended() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    let (source, destination) = layouts();
    let answer = runtime.group(|group| {
        let from = DistTensor::new(&tile, &source);
        group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)?;
        Ok(42)
    });
    assert_eq!(answer.unwrap(), 42);
    assert_eq!(stub::take_calls(), ["ncclM2nGroupStart", "ncclReshard", "ncclM2nGroupEnd"]);
    runtime.group(|_| Ok(())).unwrap();
    assert_eq!(stub::take_calls(), ["ncclM2nGroupStart", "ncclM2nGroupEnd"]);
}

#[test]
fn errors_and_panics_abort_the_native_group() {
    let (source, destination) = layouts();
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        runtime.group(|group| -> Result<()> {
            let from = DistTensor::new(&tile, &source);
            group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)?;
            panic!("as a user may");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(stub::take_calls(), ["ncclM2nGroupStart", "ncclReshard", "ncclM2nGroupAbort"]);
    assert!(comm.is_doomed());
    // The thread is free again.
    let error = send(&runtime, &comm, &tile).unwrap_err();
    assert!(matches!(error, Error::Diverged { .. }), "{error:?}");

    let (runtime, comm, _tile) = setup(MemorySpace::Host, Agreement::Off);
    let own = Error::RankGone { reason: "the file was not there".into() };
    let error = runtime.group(|_| Err::<(), _>(own.clone()));
    assert_eq!(error.unwrap_err().to_string(), own.to_string());
    assert_eq!(stub::take_calls(), ["ncclM2nGroupStart", "ncclM2nGroupAbort"]);
    assert!(!comm.is_doomed()); // it had no entry yet
}

/// Case M10: the third of five.
#[test]
fn one_wrong_entry_fails_the_group_with_its_number() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    let (source, destination) = layouts();
    let wrong = Layout::new(*destination.mesh(), &[Replicate], &[6], DataType::Uint8).unwrap();
    let group = |swallow: bool| {
        runtime.group(|group| {
            for i in 0..5 {
                let to = if i == 2 { &wrong } else { &destination };
                let to = DistTensorMut::inactive(to);
                let recorded = group.reshard(&comm, DistTensor::new(&tile, &source), to, STREAM);
                if !swallow {
                    recorded?;
                }
            }
            Ok(())
        })
    };
    for swallow in [false, true] {
        let error = group(swallow).unwrap_err();
        assert!(matches!(error, Error::Entry { index: 2, .. }), "{error:?}");
        assert!(error.to_string().starts_with("entry 2 of the group: `destination`: both sides"));
        let calls = ["ncclM2nGroupStart", "ncclReshard", "ncclReshard", "ncclM2nGroupAbort"];
        assert_eq!(stub::take_calls(), calls);
    }
    // Every rank got it: all may go on.
    assert!(!comm.is_doomed());
    send(&runtime, &comm, &tile).unwrap();
}

#[test]
fn only_the_group_s_own_methods_work_inside() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    let (busy, other) =
        (|result: Result<()>| matches!(result, Err(Error::Busy { .. })), comm.clone());
    let second = Runtime::new(comm.backend(), &Config::new()).unwrap();
    runtime
        .group(|_| {
            assert!(busy(send(&runtime, &other, &tile)));
            assert!(busy(runtime.group(|_| Ok(()))));
            assert!(busy(Runtime::new(other.backend(), &Config::new()).map(drop)));
            // SAFETY: refused.
            assert!(busy(unsafe { finalize_default(other.backend()) }));
            let refused = second.finalize().unwrap_err();
            assert!(matches!(*refused.error, Error::Busy { .. }));
            refused.value.unwrap().finalize().unwrap_err();
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_failed_group_end_poisons() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    let (source, destination) = layouts();
    stub::fail_next("ncclM2nGroupEnd", ncclResult_t::ncclInvalidArgument);
    let error = runtime.group(|group| {
        let from = DistTensor::new(&tile, &source);
        group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)
    });
    let words = "ncclM2nGroupEnd returned ncclInvalidArgument (4): the stub's words";
    assert_eq!(error.unwrap_err().to_string(), words);
    assert!(matches!(send(&runtime, &comm, &tile), Err(Error::Poisoned { .. })));
}

#[test]
fn runtimes_mix_in_a_group() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    let second = Runtime::new(comm.backend(), &config(Agreement::Off)).unwrap();
    let foreign = Runtime::new(stub::backend(MemorySpace::Host), &config(Agreement::Off)).unwrap();
    stub::take_calls();
    let (source, destination) = layouts();
    let from = DistTensor::new(&tile, &source);
    let to = || DistTensorMut::inactive(&destination);
    runtime
        .group(|group| {
            group.reshard(&comm, from, to(), STREAM)?;
            group.reshard_on(&second, &comm, from, to(), STREAM)?;
            assert!(group.reshard_on(&foreign, &comm, from, to(), STREAM).is_err());
            group.reshard_with_window(
                &comm,
                Window::NONE,
                DistTensor::new(&[1_u8, 2], &source),
                to(),
                STREAM,
            )
        })
        .unwrap();
    let calls = [
        "ncclM2nGroupStart",
        "ncclReshard",
        "ncclReshard",
        "ncclReshardWithWindow",
        "ncclM2nGroupEnd",
    ];
    assert_eq!(stub::take_calls(), calls);
}

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
    assert!(!comm.is_doomed());
}

#[test]
fn an_own_failure_is_told_and_leaves_all_in_step() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::EveryCall);
    let (source, destination) = layouts();
    let mut to = DistTensorMut::inactive(&destination);
    let error = runtime.reshard(&comm, &DistTensor::inactive(&source), &mut to, STREAM);
    assert!(error.unwrap_err().to_string().contains("source mesh passes its tile"));
    assert_eq!(stub::take_calls(), ["ncclAllGather"]);
    assert!(!comm.is_doomed());
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
    assert!(matches!(send(&runtime, &comm, &tile), Err(Error::Native { .. })));
    assert!(matches!(send(&runtime, &comm, &tile), Err(Error::Diverged { .. })));
    assert!(matches!(*runtime.finalize().unwrap_err().error, Error::Diverged { .. }));
}
