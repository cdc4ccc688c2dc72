//! Which driver calls a use on a stream adds.

use nccl_ext_core::{Access, Buffer, DeviceBuffer, LastUse, OwnedStream, Stream, Usage, Use};

use crate::driver::{calls, device, set_capturing};

/// A use, without the work.
fn touch(last_use: &dyn Usage, stream: Stream<'_>, access: Access) -> Vec<String> {
    calls();
    last_use.before(stream, access).unwrap();
    last_use.after(stream, access).unwrap();
    calls()
}

fn foreign(address: usize) -> Stream<'static> {
    // SAFETY: the driver takes any.
    unsafe { Stream::from_raw(core::ptr::without_provenance_mut(address)) }
}

const NOTHING: [&str; 0] = [];

#[test]
fn numbers_of_streams_are_never_used_again() {
    let device = device();
    let first = OwnedStream::new(device).unwrap();
    let number = first.stream().number();
    assert!(number > 0 && first.stream().number() == number);
    drop(first);
    assert!(OwnedStream::new(device).unwrap().stream().number() > number);
    assert_eq!((Stream::DEFAULT.number(), foreign(9).number()), (0, 0));
}

#[test]
fn on_one_stream_of_ours_nothing_is_added() {
    let device = device();
    let stream = OwnedStream::new(device).unwrap();
    let last_use = LastUse::new(device);
    for access in [Access::Read, Access::Write, Access::Write, Access::Read, Access::Write] {
        assert_eq!(touch(&last_use, stream.stream(), access), NOTHING);
    }
}

#[test]
fn another_stream_waits_for_an_event_that_is_made_once() {
    let device = device();
    let (a, b) = (OwnedStream::new(device).unwrap(), OwnedStream::new(device).unwrap());
    let last_use = LastUse::new(device);
    assert_eq!(touch(&last_use, a.stream(), Access::Write), NOTHING); // s101
    let changed = touch(&last_use, b.stream(), Access::Write);
    assert_eq!(changed, ["create e103", "record e103 s101", "s102 waits e103"]);
    assert_eq!(touch(&last_use, b.stream(), Access::Write), NOTHING);
    let back = touch(&last_use, a.stream(), Access::Read);
    assert_eq!(back, ["record e103 s102", "s101 waits e103"]);
    assert_eq!(touch(&last_use, a.stream(), Access::Read), NOTHING);
}

#[test]
fn reads_wait_for_the_write_and_a_write_for_all_reads() {
    let device = device();
    let streams: Vec<_> = (0..3).map(|_| OwnedStream::new(device).unwrap()).collect();
    let [a, b, c] = [0, 1, 2].map(|i: usize| streams[i].stream()); // s101, s102, s103
    let last_use = LastUse::new(device);
    assert_eq!(touch(&last_use, a, Access::Read), NOTHING);
    assert_eq!(touch(&last_use, b, Access::Read), NOTHING, "reads run at the same time");
    let written = touch(&last_use, c, Access::Write);
    let both = ["record e104 s101", "s103 waits e104", "record e104 s102", "s103 waits e104"];
    assert_eq!(written[1..], both);
    // Each read waits for the write, and for no other read.
    let read = touch(&last_use, a, Access::Read);
    assert_eq!(read, ["record e104 s103", "s101 waits e104"]);
    assert_eq!(touch(&last_use, b, Access::Read), ["record e104 s103", "s102 waits e104"]);
    assert_eq!(touch(&last_use, a, Access::Read), NOTHING, "it waited before");
    // A write where one of the reads was waits for the write and the other read.
    let written = touch(&last_use, a, Access::Write);
    assert_eq!(
        written,
        ["record e104 s102", "s101 waits e104", "record e104 s103", "s101 waits e104"]
    );
}

#[test]
fn on_the_default_stream_the_event_is_recorded_after_each_use() {
    let device = device();
    let ours = OwnedStream::new(device).unwrap(); // s101
    let last_use = LastUse::new(device);
    let used = touch(&last_use, Stream::DEFAULT, Access::Write);
    assert_eq!(used, ["create e102", "record e102 s0"]);
    assert_eq!(touch(&last_use, Stream::DEFAULT, Access::Write), ["record e102 s0"]);
    assert_eq!(touch(&last_use, Stream::DEFAULT, Access::Read), ["record e102 s0"]);
    // Nothing is asked of it later.
    assert_eq!(touch(&last_use, ours.stream(), Access::Write), ["s101 waits e102"]);
}

#[test]
fn a_foreign_address_may_be_another_stream_by_now() {
    let device = device();
    let last_use = LastUse::new(device);
    let used = touch(&last_use, foreign(7), Access::Write);
    assert_eq!(used, ["create e101", "record e101 s7"]);
    let again = touch(&last_use, foreign(7), Access::Read);
    assert_eq!(again, ["s7 waits e101", "record e101 s7"]);
    let other = touch(&last_use, foreign(8), Access::Read);
    assert_eq!(other, ["s8 waits e101", "create e102", "record e102 s8"]);
}

#[test]
fn the_per_thread_streams_of_threads_are_many() {
    let device = device();
    let last_use = LastUse::new(device);
    let per_thread = foreign(2);
    let first = touch(&last_use, per_thread, Access::Read);
    assert_eq!(first, ["create e101", "record e101 s2"]);
    let second = touch(&last_use, per_thread, Access::Read);
    assert_eq!(second, ["create e102", "record e102 s2"], "the first event stays");
    let written = touch(&last_use, foreign(7), Access::Write);
    assert_eq!(written[..2], ["s7 waits e101", "s7 waits e102"]);
}

#[test]
fn two_uses_at_a_time_on_a_foreign_stream_end_with_the_later_event() {
    let device = device();
    let last_use = LastUse::new(device);
    last_use.before(foreign(7), Access::Read).unwrap();
    last_use.before(foreign(7), Access::Read).unwrap();
    last_use.after(foreign(7), Access::Read).unwrap();
    last_use.after(foreign(7), Access::Read).unwrap();
    assert_eq!(calls(), ["create e101", "record e101 s7", "record e101 s7"]);
}

#[test]
fn no_event_crosses_the_border_of_a_capture() {
    let device = device();
    let ours = OwnedStream::new(device).unwrap();
    let last_use = LastUse::new(device);
    touch(&last_use, ours.stream(), Access::Write);
    set_capturing(true);
    assert_eq!(touch(&last_use, foreign(7), Access::Write), NOTHING);
    set_capturing(false);
    assert_eq!(touch(&last_use, ours.stream(), Access::Write), NOTHING, "as if it had not been");
}

#[test]
fn a_stream_is_destroyed_when_nothing_remembers_it() {
    let device = device();
    let (a, b) = (OwnedStream::new(device).unwrap(), OwnedStream::new(device).unwrap());
    let last_use = LastUse::new(device);
    touch(&last_use, a.stream(), Access::Write);
    drop(a);
    assert_eq!(calls(), NOTHING);
    let changed = touch(&last_use, b.stream(), Access::Write);
    assert_eq!(changed[1..], ["record e103 s101", "s102 waits e103", "destroy s101"]);
    // A forgotten owner changes nothing.
    let raw = b.stream().as_raw();
    std::mem::forget(b);
    let other = OwnedStream::new(device).unwrap();
    let changed = touch(&last_use, other.stream(), Access::Write);
    assert_eq!(changed[0], format!("record e103 s{}", raw.addr()));
}

#[test]
fn readers_whose_streams_are_gone_do_not_pile_up() {
    let device = device();
    let last_use = LastUse::new(device);
    let mut destroyed = 0;
    for _ in 0..100 {
        let stream = OwnedStream::new(device).unwrap();
        last_use.before(stream.stream(), Access::Read).unwrap();
        drop(stream);
        destroyed += calls().iter().filter(|call| call.starts_with("destroy")).count();
    }
    assert!(destroyed >= 92, "{destroyed} of 100");
}

#[test]
fn two_threads_read_on_two_streams_and_a_write_waits_for_both() {
    let device = device();
    let mut buffer = Buffer::<u32>::zeroed(device, 4).unwrap();
    let streams = [OwnedStream::new(device).unwrap(), OwnedStream::new(device).unwrap()];
    std::thread::scope(|scope| {
        for stream in &streams {
            let buffer = &buffer;
            scope.spawn(move || {
                for _ in 0..100 {
                    let uses = [Use::read(buffer.usage())];
                    Use::around(stream.stream(), &uses, || Ok(())).unwrap();
                }
                assert_eq!(calls(), NOTHING);
            });
        }
    });
    calls();
    let third = OwnedStream::new(device).unwrap();
    buffer.write(&[1; 4], third.stream()).unwrap();
    let calls = calls();
    let recorded = |stream: &OwnedStream| {
        let end = format!(" s{}", stream.stream().as_raw().addr());
        calls.iter().filter(|call| call.starts_with("record") && call.ends_with(&end)).count()
    };
    assert_eq!(streams.each_ref().map(recorded), [1, 1], "{calls:?}");
}

#[test]
fn hooks_run_around_a_call_in_order_and_also_when_it_fails() {
    struct Hooks(&'static str, std::sync::Mutex<Vec<String>>);
    impl Usage for Hooks {
        fn before(&self, _: Stream<'_>, access: Access) -> nccl_ext_core::Result<()> {
            self.1.lock().unwrap().push(format!("before {access:?}"));
            match self.0 {
                "refuses" => Err(nccl_ext_core::Error::RankGone { reason: "no".into() }),
                _ => Ok(()),
            }
        }
        fn after(&self, _: Stream<'_>, access: Access) -> nccl_ext_core::Result<()> {
            self.1.lock().unwrap().push(format!("after {access:?}"));
            Ok(())
        }
    }
    let (good, bad) = (Hooks("takes", Default::default()), Hooks("refuses", Default::default()));
    let failed = || Err::<(), _>(nccl_ext_core::Error::RankGone { reason: "call".into() });
    let uses = [Use::write(Some(&good)), Use::NONE];
    let error = Use::around(Stream::DEFAULT, &uses, failed).unwrap_err();
    assert_eq!(error.to_string(), "call");
    assert_eq!(*good.1.lock().unwrap(), ["before Write", "after Write"]);
    // Refused before the call: it is not made, and those that were told of it hear of its end.
    let uses = [Use::read(Some(&good)), Use::read(Some(&bad)), Use::write(Some(&good))];
    let mut called = false;
    let error = Use::around(Stream::DEFAULT, &uses, || {
        called = true;
        Ok(())
    });
    assert_eq!(error.unwrap_err().to_string(), "no");
    assert!(!called);
    assert_eq!(good.1.lock().unwrap()[2..], ["before Read", "after Read"]);
    assert_eq!(*bad.1.lock().unwrap(), ["before Read"]);
}
