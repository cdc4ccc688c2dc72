//! Host access and drops wait for what was used, and for nothing else.

use nccl_ext_core::{Access, Buffer, DeviceBuffer, OwnedStream, Stream};

use crate::driver::{calls, device};

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
