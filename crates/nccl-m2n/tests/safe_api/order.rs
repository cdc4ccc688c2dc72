//! Reshards on several streams are ordered by the library, over a driver that writes down what orders
//! streams.

use nccl_ext_cpu::run_ranks;
use nccl_ext_test::stub::OrderCall::{Recorded, Waits};
use nccl_ext_test::stub::{m2n as stub, set_network, take_order};
use nccl_m2n::{
    Agreement, Buffer, Comm, DistTensor, DistTensorMut, Error, MemorySpace, OwnedStream, Runtime,
    Stream,
};

use crate::stub_runtime::{config as stub_config, layouts, setup};

fn reshard(runtime: &Runtime, comm: &Comm, tile: &Buffer<u8>, stream: Stream<'_>) {
    let (source, destination) = layouts();
    let mut to = DistTensorMut::inactive(&destination);
    runtime.reshard(comm, &DistTensor::new(tile, &source), &mut to, stream).unwrap();
}

fn address(stream: &OwnedStream) -> usize {
    stream.stream().as_raw().addr()
}

#[test]
fn on_one_stream_of_ours_nothing_is_added() {
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    let stream = OwnedStream::new(&comm).unwrap();
    reshard(&runtime, &comm, &tile, stream.stream());
    take_order();
    for _ in 0..3 {
        reshard(&runtime, &comm, &tile, stream.stream());
    }
    assert_eq!(take_order(), []);
}

#[test]
fn a_reshard_on_another_stream_waits_for_the_one_before() {
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    let [a, b] = [(); 2].map(|()| OwnedStream::new(&comm).unwrap());
    reshard(&runtime, &comm, &tile, a.stream());
    take_order();
    reshard(&runtime, &comm, &tile, b.stream());
    // The library's own memory; the tile is only read.
    assert_eq!(take_order(), [Recorded(address(&a)), Waits(address(&b))]);
    drop(tile);
    let expected = [Recorded(address(&a)), Recorded(address(&b))];
    assert_eq!(take_order(), expected, "a drop waits for both");
}

#[test]
fn a_tile_that_another_stream_wrote_is_waited_for() {
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    let (source, destination) = layouts();
    let receiver = stub::comm_on(comm.backend(), 4, 2);
    let [a, b] = [(); 2].map(|()| OwnedStream::new(&comm).unwrap());
    let mut to = Buffer::<u8>::zeroed(&receiver, 4).unwrap();
    let mut destination = DistTensorMut::new(&mut to, &destination);
    let from = DistTensor::inactive(&source);
    runtime.reshard(&receiver, &from, &mut destination, a.stream()).unwrap();
    take_order();
    // Rank 2 received it on one stream; reading it on another comes after that.
    to.read_into(&mut [0; 4], b.stream()).unwrap();
    assert_eq!(take_order(), [Recorded(address(&a)), Waits(address(&b))]);
    drop(tile);
}

#[test]
fn a_group_comes_after_what_it_uses_and_is_remembered_on_all_its_streams() {
    set_network(true);
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    let (source, destination) = layouts();
    let other = Buffer::<u8>::zeroed(&comm, 2).unwrap();
    let [before, a, b, after] = [(); 4].map(|()| OwnedStream::new(&comm).unwrap());
    reshard(&runtime, &comm, &tile, before.stream());
    take_order();
    let group = |streams: [Stream<'_>; 2]| {
        runtime
            .group(|group| {
                for (tile, stream) in [&tile, &other].into_iter().zip(streams) {
                    let from = DistTensor::new(tile, &source);
                    group.reshard(&comm, from, DistTensorMut::inactive(&destination), stream)?;
                }
                Ok(())
            })
            .unwrap();
    };
    group([a.stream(), b.stream()]);
    let [before, first, second] = [&before, &a, &b].map(address);
    let expected = [
        [Recorded(before), Waits(first)],
        [Recorded(first), Waits(second)],
        [Recorded(second), Waits(first)],
    ];
    assert_eq!(take_order(), expected.concat());
    reshard(&runtime, &comm, &tile, after.stream());
    let after = address(&after);
    let expected = [[Recorded(first), Waits(after)], [Recorded(second), Waits(after)]];
    assert_eq!(take_order(), expected.concat());
    // On one stream, again and again: nothing.
    group([a.stream(); 2]);
    take_order();
    group([a.stream(); 2]);
    assert_eq!(take_order(), []);
}

#[test]
fn after_an_abort_no_call_reaches_the_library() {
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    comm.abort("rank 1 is dead");
    let (source, destination) = layouts();
    stub::take_calls();
    let mut to = DistTensorMut::inactive(&destination);
    let from = DistTensor::new(&tile, &source);
    let error = runtime.reshard(&comm, &from, &mut to, Stream::DEFAULT).unwrap_err();
    assert!(
        matches!(&error, Error::Poisoned { cause } if cause.to_string() == "rank 1 is dead"),
        "{error}"
    );
    assert_eq!(stub::take_calls(), [""; 0]);
    // The runtime is fine; other communicators go on.
    let other = stub::comm_on(comm.backend(), 4, 0);
    reshard(&runtime, &other, &tile, Stream::DEFAULT);
}

/// With real work, delayed and interleaved in several ways: the deferred backend would name a race.
#[test]
fn reshards_over_three_streams_are_right_whatever_the_seed() {
    for seed in 0..10 {
        let config = nccl_ext_test::worlds::config().deferred(seed);
        let results = run_ranks(4, &config, |comm: Comm| {
            let runtime = Runtime::new(comm.backend(), &stub_config(Agreement::PerShape))?;
            let (source, destination) = layouts();
            let [a, b, c] = [(); 3].map(|()| OwnedStream::new(&comm).unwrap());
            let mut from = Buffer::<u8>::zeroed(&comm, 2)?;
            let mut to = Buffer::<u8>::zeroed(&comm, 4)?;
            for (round, stream) in [&a, &b, &a].into_iter().enumerate() {
                let first = (10 * round + 2 * comm.rank()) as u8;
                from.write(&[first, first + 1], c.stream())?;
                let mut to = DistTensorMut::new(&mut to, &destination);
                let from = DistTensor::new(&from, &source);
                runtime.reshard(&comm, &from, &mut to, stream.stream())?;
            }
            drop(from);
            let received = to.to_vec(c.stream())?;
            runtime.finalize()?;
            Ok::<_, Error>(received)
        });
        let received: Vec<Vec<u8>> = results.into_iter().map(Result::unwrap).collect();
        assert_eq!(received[2..], [[20, 21, 22, 23], [20, 21, 22, 23]], "seed {seed}");
    }
}
