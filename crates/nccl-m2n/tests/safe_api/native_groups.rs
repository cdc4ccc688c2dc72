//! Which native calls groups make over stub tables, and when.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_test::stub::m2n as stub;
use nccl_ext_test::worlds::STREAM;
use nccl_m2n::Placement::Replicate;
use nccl_m2n::{
    Agreement, Config, DataType, DistTensor, DistTensorMut, Error, Layout, MemorySpace, Result,
    Runtime, Window, finalize_default,
};

use crate::stub_runtime::{config, layouts, send, setup};

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
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"as a user may"));
    assert_eq!(stub::take_calls(), ["ncclM2nGroupStart", "ncclReshard", "ncclM2nGroupAbort"]);
    assert!(comm.is_marked_for_abort());
    // The thread is free again.
    let error = send(&runtime, &comm, &tile).unwrap_err();
    assert!(matches!(error, Error::Diverged { .. }), "{error:?}");

    let (runtime, comm, _tile) = setup(MemorySpace::Host, Agreement::Off);
    let own = Error::RankGone { reason: "the file was not there".into() };
    let error = runtime.group(|_| Err::<(), _>(own.clone()));
    assert_eq!(error.unwrap_err().to_string(), own.to_string());
    assert_eq!(stub::take_calls(), ["ncclM2nGroupStart", "ncclM2nGroupAbort"]);
    assert!(!comm.is_marked_for_abort()); // it had no entry yet
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
    assert!(!comm.is_marked_for_abort());
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
            let again = refused.value.unwrap().finalize().unwrap_err();
            assert!(matches!(*again.error, Error::Busy { .. }));
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
            let error = group.reshard_on(&foreign, &comm, from, to(), STREAM).unwrap_err();
            assert!(
                error.to_string().contains("it records for the library of one backend"),
                "{error}"
            );
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
