//! Host access and drops wait for what was used, and for nothing else.

use nccl_ext_core::{
    Access, Buffer, DeviceBuffer, Error, OwnedStream, PinnedBuffer, Reduction, Stream,
};

use crate::driver::{calls, device, set_done};

fn use_it(buffer: &Buffer<u32>, stream: Stream<'_>, access: Access) {
    let usage = buffer.usage().unwrap();
    usage.before(stream, access).unwrap();
    usage.after(stream, access).unwrap();
}

fn buffer() -> Buffer<u32> {
    let buffer = Buffer::zeroed(device(), 4).unwrap();
    calls();
    buffer
}

#[test]
fn a_buffer_that_was_never_used_waits_for_nothing() {
    drop(buffer());
    assert_eq!(calls(), ["free"]);
}

#[test]
fn a_drop_waits_for_the_streams_of_its_last_uses() {
    let buffer = buffer();
    let streams = [(); 3].map(|()| OwnedStream::new(buffer.device()).unwrap()); // s101 to s103
    use_it(&buffer, streams[0].stream(), Access::Write);
    use_it(&buffer, streams[1].stream(), Access::Read);
    drop(streams);
    calls();
    drop(buffer);
    let calls = calls();
    let expected = ["record e104 s102", "done e104", "record e104 s101", "done e104"];
    assert_eq!(calls[..4], expected, "not s103, which never used it");
    assert!(calls.contains(&"free".to_owned()) && !calls.iter().any(|c| c.starts_with("BLOCK")));
}

#[test]
fn a_drop_asks_nothing_of_a_foreign_stream() {
    let buffer = buffer();
    use_it(&buffer, Stream::DEFAULT, Access::Write);
    assert_eq!(calls(), ["create e101", "record e101 s0"]);
    drop(buffer);
    assert_eq!(calls(), ["done e101", "free", "destroy e101"]);
}

#[test]
fn a_write_of_the_host_is_ordered_and_leaves_nothing_behind() {
    let mut buffer = buffer();
    let device = buffer.device();
    let (a, b) = (OwnedStream::new(device).unwrap(), OwnedStream::new(device).unwrap());
    use_it(&buffer, a.stream(), Access::Read); // s101
    calls();
    buffer.write(&[1; 4], b.stream()).unwrap(); // s102
    let expected =
        ["create e103", "record e103 s101", "s102 waits e103", "copy s102", "BLOCK s102"];
    assert_eq!(calls(), expected);
    drop(buffer);
    assert_eq!(calls(), ["free", "destroy e103"]);
}

#[test]
fn a_read_of_the_host_waits_for_the_write_and_not_for_reads() {
    let buffer = buffer();
    let device = buffer.device();
    let streams = [(); 3].map(|()| OwnedStream::new(device).unwrap());
    use_it(&buffer, streams[0].stream(), Access::Write);
    use_it(&buffer, streams[1].stream(), Access::Read);
    calls();
    buffer.read_into(&mut [0; 4], streams[2].stream()).unwrap();
    assert_eq!(calls(), ["record e104 s101", "s103 waits e104", "copy s103", "BLOCK s103"]);
    // On the default stream no event is needed for what the host has waited for.
    buffer.read_into(&mut [0; 4], Stream::DEFAULT).unwrap();
    assert_eq!(calls(), ["record e104 s101", "s0 waits e104", "copy s0", "BLOCK s0"]);
    drop(buffer);
    let calls = calls();
    assert!(calls.contains(&"free".to_owned()), "{calls:?}");
}

#[test]
fn a_copy_between_buffers_orders_both() {
    let (mut to, from) = (buffer(), Buffer::<u32>::zeroed(device(), 4));
    let from = from.unwrap();
    // One driver, two backends: a buffer of the same one is what a copy takes.
    assert!(to.copy_from(&from, Stream::DEFAULT).is_err());
    let from = Buffer::<u32>::zeroed(to.device(), 4).unwrap();
    let (a, b) = (OwnedStream::new(to.device()).unwrap(), OwnedStream::new(to.device()).unwrap());
    use_it(&from, a.stream(), Access::Write);
    let raw = |stream: &OwnedStream| stream.stream().as_raw().addr();
    calls();
    to.copy_from(&from, b.stream()).unwrap();
    let calls = calls();
    assert!(calls[1].ends_with(&format!(" s{}", raw(&a))), "{calls:?}");
    assert!(calls[2].starts_with(&format!("s{} waits", raw(&b))), "{calls:?}");
    assert_eq!(calls[3..], [format!("copy s{}", raw(&b)), format!("BLOCK s{}", raw(&b))]);
}

#[test]
fn copies_with_pinned_memory_only_enqueue_and_access_waits() {
    let mut buffer = buffer();
    let device = buffer.device();
    let stream = OwnedStream::new(device).unwrap(); // s101
    let source = PinnedBuffer::from_slice(device, &[1_u32, 2, 3, 4]).unwrap();
    let mut destination = PinnedBuffer::<u32>::zeroed(device, 4).unwrap();
    calls();
    buffer.enqueue_write(&source, stream.stream()).unwrap();
    buffer.enqueue_read(&mut destination, stream.stream()).unwrap();
    assert_eq!(calls(), ["copy s101", "copy s101"]);
    // The copy only read it: the host may, too.
    assert_eq!(source.get().unwrap(), [1, 2, 3, 4]);
    assert!(calls().is_empty());
    assert_eq!(destination.get().unwrap().len(), 4);
    assert_eq!(calls(), ["create e102", "record e102 s101", "done e102"]);
    let mut source = source;
    source.get_mut().unwrap()[0] = 7;
    assert_eq!(calls(), ["create e103", "record e103 s101", "done e103"]);
    drop((source, destination));
    let calls = calls();
    assert_eq!(calls.iter().filter(|call| *call == "free host").count(), 2);
    // The first was waited for already, the second was not told so.
    assert_eq!(calls.iter().filter(|call| call.starts_with("done")).count(), 1, "{calls:?}");
}

#[test]
fn pinned_memory_that_cannot_be_had_is_an_error() {
    let device = device();
    let error = PinnedBuffer::<u64>::zeroed(device, 1 << 50).unwrap_err();
    assert!(matches!(error, Error::Driver { call: "cuMemHostAlloc", code: 2, .. }), "{error}");
    let error = PinnedBuffer::<u64>::zeroed(device, usize::MAX).unwrap_err();
    assert!(matches!(error, Error::Invalid { name: "buffer.size", .. }), "{error}");
    assert!(PinnedBuffer::<u64>::zeroed(device, 0).unwrap().get().unwrap().is_empty());
}

#[test]
fn pinned_memory_under_an_abandoned_copy_is_not_read() {
    let comm = crate::driver::comm();
    let stream = OwnedStream::new(&comm).unwrap();
    let [send, mut recv] = [(); 2].map(|()| Buffer::<u32>::zeroed(&comm, 4).unwrap());
    comm.all_reduce(&send, &mut recv, Reduction::Sum, stream.stream()).unwrap();
    let mut copy = PinnedBuffer::<u32>::zeroed(&comm, 4).unwrap();
    recv.enqueue_read(&mut copy, stream.stream()).unwrap();
    set_done(false);
    comm.abort("rank 1 is dead");
    calls();
    assert!(matches!(copy.get(), Err(Error::Poisoned { .. })));
    drop(copy);
    assert!(!calls().contains(&"free host".to_owned()));
    std::mem::forget((send, recv));
    set_done(true);
}
