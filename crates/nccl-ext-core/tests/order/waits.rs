//! Waits that end.

use std::time::Duration;

use nccl_ext_core::{Error, Event, OwnedStream, Stream};

use crate::driver::{calls, comm_without_end, set_async_error, set_done};

const SHORT: Duration = Duration::from_micros(100);

#[test]
fn what_is_not_done_is_not_waited_for_beyond_the_limit() {
    let comm = comm_without_end();
    let stream = OwnedStream::new(comm).unwrap();
    let stream = stream.stream();
    set_done(false);
    assert!(!stream.is_done(comm).unwrap());
    for error in
        [stream.wait_for(comm, SHORT).unwrap_err(), comm.wait_for(stream, SHORT).unwrap_err()]
    {
        assert!(matches!(&error, Error::Timeout { ranks, .. } if ranks.is_empty()), "{error}");
    }
    set_done(true);
    assert!(stream.is_done(comm).unwrap());
    stream.wait_for(comm, Duration::ZERO).unwrap();
    comm.wait_for(stream, Duration::ZERO).unwrap();
    assert!(!calls().iter().any(|call| call.starts_with("BLOCK")));
}

#[test]
fn an_asynchronous_error_is_told_instead_of_the_timeout() {
    let comm = comm_without_end();
    set_done(false);
    set_async_error(6);
    let error = comm.wait_for(Stream::DEFAULT, Duration::from_secs(60)).unwrap_err();
    assert!(
        matches!(&error, Error::Native { call: "ncclCommGetAsyncError", code, detail }
            if code.0 == 6 && detail == "a peer is gone"),
        "{error}"
    );
    // In progress is no error.
    set_async_error(7);
    assert!(matches!(comm.wait_for(Stream::DEFAULT, SHORT), Err(Error::Timeout { .. })));
}

#[test]
fn an_abort_ends_a_wait() {
    let comm = comm_without_end();
    set_done(false);
    comm.abort("rank 1 is dead");
    let error = comm.wait_for(Stream::DEFAULT, Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
}

#[test]
fn host_backends_have_nothing_to_wait_for() {
    let device = host_device();
    let (mut event, stream) = (Event::new(device).unwrap(), OwnedStream::new(device).unwrap());
    event.record(stream.stream()).unwrap();
    stream.stream().wait(&event).unwrap();
    assert!(event.is_done().unwrap() && stream.stream().is_done(device).unwrap());
    event.wait_for(Duration::ZERO).unwrap();
    assert!(stream.stream().number() > 0);
}

/// A device without a driver.
fn host_device() -> nccl_ext_core::Device {
    let builder = nccl_ext_core::Backend::builder("host", nccl_ext_core::MemorySpace::Host);
    // SAFETY: no native call is made through it.
    nccl_ext_core::Device::new(unsafe { builder.build() }, 0)
}
