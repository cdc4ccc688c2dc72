//! Steps that streams and events order give what they give where calls are complete.

use std::rc::Rc;

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_core::{Comm, Event, OwnedStream, Stream};
use nccl_ext_test::cpu::ep::*;

use super::{SEEDS, on_two_streams};

/// What a combine of what was received gives back for G2: each token once for every rank (FLAT) or
/// expert that has it.
fn sums_of(rank: usize, layout: ncclEpLayout_t) -> Vec<f32> {
    let times = match (rank, layout == FLAT) {
        (0, true) => [2., 2., 1., 0.],
        (0, false) => [2., 2., 2., 0.],
        (_, true) => [1.; 4],
        (_, false) => [1., 1., 2., 2.],
    };
    (G2.values)(rank).iter().zip(times).map(|(value, times)| value * times).collect()
}

#[track_caller]
fn assert_sums(comm: &Comm, rank: &DeviceRank, stream: Stream<'_>) {
    let sums = rank.sums.buffer.to_vec(stream).unwrap();
    assert_eq!(row_values(&sums, HT_HIDDEN), sums_of(comm.rank(), rank.handle.layout));
}

#[track_caller]
fn on_every_seed(body: impl Fn(&Comm, [&OwnedStream; 2]) + Sync) {
    for seed in SEEDS {
        for end in on_two_streams(seed, |comm, streams| {
            body(comm, streams);
            Ok(())
        }) {
            end.unwrap();
        }
    }
}

/// EP 4.11.
#[test]
fn two_handles_take_turns_on_one_stream() {
    on_every_seed(|comm, [stream, _]| {
        let stream = stream.stream();
        let mut a = DeviceRank::new(comm, G2, EXPERT_MAJOR, |_| ());
        let mut b = DeviceRank::in_group(comm, Rc::clone(&a.group), G2, FLAT);
        a.update(stream).unwrap();
        b.update(stream).unwrap();
        a.dispatch(stream).unwrap();
        b.dispatch(stream).unwrap();
        b.combine(stream).unwrap();
        a.combine(stream).unwrap();
        for rank in [a, b] {
            assert_sums(comm, &rank, stream);
        }
    });
}

#[test]
fn a_step_moves_from_stream_to_stream_with_events() {
    on_every_seed(|comm, [a, b]| {
        let mut rank = DeviceRank::new(comm, G2, EXPERT_MAJOR, |_| ());
        let mut event = Event::new(comm).unwrap();
        let mut order = |from: &OwnedStream, to: &OwnedStream| {
            event.record(from.stream()).unwrap();
            to.stream().wait(&event).unwrap();
        };
        for _ in 0..3 {
            rank.update(a.stream()).unwrap();
            order(a, b);
            rank.dispatch(b.stream()).unwrap();
            order(b, a);
            rank.combine(a.stream()).unwrap();
        }
        assert_sums(comm, &rank, a.stream());
    });
}

/// The second update is known when the third call is checked, whatever the stream has done by then.
#[test]
fn calls_are_checked_against_the_last_update_that_was_called() {
    let none = Fixture { ids: |_| vec![], values: |_| vec![], ..G2 };
    on_every_seed(|comm, [stream, _]| {
        let stream = stream.stream();
        let mut rank = DeviceRank::new(comm, G2, EXPERT_MAJOR, |_| ());
        let mut empty = DeviceRank::in_group(comm, Rc::clone(&rank.group), none, EXPERT_MAJOR);
        rank.update(stream).unwrap();
        std::mem::swap(&mut rank.handle, &mut empty.handle);
        std::mem::swap(&mut rank.memory, &mut empty.memory);
        // The handle that has an update of four tokens gets one of none.
        empty.update(stream).unwrap();
        empty.dispatch(stream).unwrap();
        empty.combine(stream).unwrap();
        stream.synchronize(comm).unwrap();
        assert_eq!(empty.total.buffer.to_vec(stream).unwrap(), [0]);
    });
}

#[test]
fn an_import_after_the_update_goes_on_from_there() {
    on_every_seed(|comm, [stream, _]| {
        let stream = stream.stream();
        let mut rank = DeviceRank::new(comm, G2, EXPERT_MAJOR, |_| ());
        rank.update(stream).unwrap();
        stream.synchronize(comm).unwrap();
        rank.handle = rank.import().unwrap();
        rank.dispatch(stream).unwrap();
        rank.combine(stream).unwrap();
        assert_sums(comm, &rank, stream);
    });
}
