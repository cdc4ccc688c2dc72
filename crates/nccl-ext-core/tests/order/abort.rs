//! Case A10: a peer is dead, a kernel spins, and this process drops its buffers.

use nccl_ext_core::{
    Access, Buffer, Comm, Device, DeviceBuffer, Error, OwnedStream, PinnedBuffer, Reduction,
    Stream, Usage,
};

use crate::driver::{calls, comm, set_done};

fn spin(comm: &Comm, stream: Stream<'_>) -> [Buffer<u32>; 2] {
    let [send, mut recv] = [(); 2].map(|()| Buffer::<u32>::zeroed(comm, 4).unwrap());
    comm.all_reduce(&send, &mut recv, Reduction::Sum, stream).unwrap();
    calls();
    set_done(false);
    [send, recv]
}

/// Nothing that waits, and nothing that frees.
fn left_behind(calls: &[String]) -> bool {
    !calls.iter().any(|c| c.starts_with("BLOCK") || c.starts_with("free") || c == "ncclCommAbort")
}

#[test]
fn after_an_abort_drops_leave_behind_what_a_kernel_may_use() {
    let comm = comm();
    let stream = OwnedStream::new(&comm).unwrap();
    let [send, recv] = spin(&comm, stream.stream());
    std::thread::scope(|scope| {
        scope.spawn(|| comm.abort("rank 1 is dead"));
    });
    assert!(comm.is_marked_for_abort());
    drop((send, recv));
    assert!(left_behind(&calls()));
    drop(stream);
    drop(comm);
    assert!(left_behind(&calls()), "NCCL's abort does not return under a waiting kernel");
    set_done(true);
}

#[test]
fn the_same_on_the_default_stream() {
    let comm = comm();
    let buffers = spin(&comm, Stream::DEFAULT);
    comm.abort("rank 1 is dead");
    drop(buffers);
    drop(comm);
    assert!(left_behind(&calls()));
    set_done(true);
}

/// EP 6.4: a free waits for the kernel, also one of memory that the kernel does not use.
#[test]
fn nothing_of_the_device_is_freed_while_the_kernel_waits() {
    let comm = comm();
    let [stream, other_stream] = [(); 2].map(|()| OwnedStream::new(&comm).unwrap());
    let (unused, pinned) = (Buffer::<u32>::zeroed(&comm, 4), PinnedBuffer::<u32>::zeroed(&comm, 4));
    let device = comm.device();
    let elsewhere = Device::new(device.backend(), 1);
    let elsewhere = Buffer::<u32>::zeroed(elsewhere, 4).unwrap();
    let spinning = spin(&comm, stream.stream());
    comm.abort("rank 1 is dead");
    drop((unused, pinned, spinning, other_stream));
    let at_once = calls();
    assert!(
        !at_once.iter().any(|c| c.starts_with("free") || c.starts_with("BLOCK")),
        "{at_once:?}"
    );
    drop(elsewhere);
    assert_eq!(calls(), ["free"], "of another device");
    // The kernel ends after all: the device is as any other.
    let later = Buffer::<u32>::zeroed(device, 4).unwrap();
    set_done(true);
    calls();
    drop(later);
    assert!(calls().contains(&"free".to_owned()));
}

#[test]
fn what_is_done_is_freed_all_the_same() {
    let comm = comm();
    let stream = OwnedStream::new(&comm).unwrap();
    let buffers = spin(&comm, stream.stream());
    comm.abort("rank 1 is dead");
    set_done(true);
    drop(buffers);
    assert_eq!(calls().iter().filter(|call| *call == "free").count(), 2);
    drop(comm);
    assert_eq!(calls().iter().filter(|call| *call == "ncclCommAbort").count(), 1);
}

#[test]
fn a_drop_that_waits_already_is_let_go_by_an_abort() {
    let comm = comm();
    let stream = OwnedStream::new(&comm).unwrap();
    let buffers = spin(&comm, stream.stream());
    let calls = std::thread::scope(|scope| {
        let dropping = scope.spawn(move || {
            set_done(false);
            drop(buffers);
            calls()
        });
        comm.abort("rank 1 is dead");
        dropping.join().unwrap()
    });
    assert!(left_behind(&calls), "{calls:?}");
    drop(comm);
    set_done(true);
}

#[test]
fn no_native_call_follows_the_mark() {
    let comm = comm();
    let stream = OwnedStream::new(&comm).unwrap();
    let [send, mut recv] = [(); 2].map(|()| Buffer::<u32>::zeroed(&comm, 4).unwrap());
    comm.abort("rank 1 is dead");
    comm.abort("another reason");
    calls();
    let error = comm.all_reduce(&send, &mut recv, Reduction::Sum, stream.stream()).unwrap_err();
    assert!(
        matches!(&error, Error::Poisoned { cause } if cause.to_string() == "rank 1 is dead"),
        "{error}"
    );
    assert!(comm.check_async().is_ok());
    assert!(calls().is_empty());
    assert!(comm.destroy().is_ok(), "the abort took its place");
    assert_eq!(calls(), ["ncclCommAbort"]);
}

#[test]
fn memory_that_an_abandoned_kernel_uses_is_refused_elsewhere() {
    let comm = comm();
    let [spinning, other] = [(); 2].map(|()| OwnedStream::new(&comm).unwrap());
    let [send, mut recv] = spin(&comm, spinning.stream());
    comm.abort("rank 1 is dead");
    let usage: &dyn Usage = recv.usage().unwrap();
    let error = usage.before(other.stream(), Access::Read).unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    let error = recv.write(&[1; 4], other.stream()).unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    std::mem::forget((send, recv));
    set_done(true);
}
