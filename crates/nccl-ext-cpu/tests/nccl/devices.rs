//! Several devices in one world: what is on one is refused on another (case A1).

use nccl_ext_core::{Buffer, Comm, Device, Error, Event, OwnedStream, Reduction, Result, Stream};
use nccl_ext_cpu::{CpuConfig, RankFailure, backend, run_ranks};
use nccl_ext_test::worlds::{error_of, failed_peer};

const STREAM: Stream<'static> = Stream::DEFAULT;

/// Two ranks on two devices. Rank 1, on device 1, does what is refused; rank 0 comes to an
/// all-reduce that rank 1 will never come to. Gives both errors.
fn refused(
    call: impl Fn(&Comm, Device) -> Result<()> + Sync,
) -> Vec<Result<(), RankFailure<Error>>> {
    run_ranks(2, &CpuConfig::new().devices(2), |comm| {
        if comm.rank() == 1 {
            return call(&comm, Device::new(backend(), 0));
        }
        comm.all_reduce(&[1_i32], &mut [0_i32], Reduction::Sum, STREAM)
    })
}

fn assert_names_both(call: impl Fn(&Comm, Device) -> Result<()> + Sync, words: &str) {
    let outcomes = refused(call);
    let error = error_of(&outcomes[1]).to_string();
    assert!(error.contains(words), "{error}");
    let (rank, told) = failed_peer(error_of(&outcomes[0]));
    assert_eq!((rank, told.contains(words)), (1, true), "{told}");
}

const MEMORY: &str = "expected host memory of device 1 of backend cpu, found host memory of \
                      device 0 of backend cpu";
const STREAMS: &str =
    "expected a stream of device 1 of backend cpu, found one of device 0 of backend cpu";

#[test]
fn ranks_are_dealt_to_devices_in_turn() {
    let devices = |config: CpuConfig| -> Vec<i32> {
        let ordinals = run_ranks(5, &config, |comm| Ok::<_, Error>(comm.device().ordinal()));
        ordinals.into_iter().map(|ordinal| ordinal.unwrap()).collect()
    };
    assert_eq!(devices(CpuConfig::new()), [0, 0, 0, 0, 0]);
    assert_eq!(devices(CpuConfig::new().devices(0)), [0, 0, 0, 0, 0]);
    assert_eq!(devices(CpuConfig::new().devices(3)), [0, 1, 2, 0, 1]);
    assert!(nccl_ext_core::device::count(backend()).unwrap() >= 3);
}

#[test]
fn collectives_refuse_memory_of_another_device() {
    assert_names_both(
        |comm, other| {
            let send = Buffer::<i32>::zeroed(other, 1)?;
            comm.all_reduce(&send, &mut Buffer::<i32>::zeroed(comm, 1)?, Reduction::Sum, STREAM)
        },
        MEMORY,
    );
    assert_names_both(
        |comm, other| {
            let send = Buffer::<i32>::zeroed(comm, 1)?;
            comm.all_gather(&send, &mut Buffer::<i32>::zeroed(other, 2)?, STREAM)
        },
        MEMORY,
    );
    let to_broadcast = |comm: &Comm, other: Device| {
        comm.broadcast(&mut Buffer::<i32>::zeroed(other, 1)?, 0, STREAM)
    };
    assert_names_both(to_broadcast, MEMORY);
}

#[test]
fn collectives_refuse_streams_of_another_device() {
    assert_names_both(
        |comm, other| {
            let stream = OwnedStream::new(other)?;
            comm.all_reduce(&[1_i32], &mut [0_i32], Reduction::Sum, stream.stream())
        },
        STREAMS,
    );
    assert_names_both(
        |comm, other| comm.broadcast(&mut [0_i32], 0, OwnedStream::new(other)?.stream()),
        STREAMS,
    );
}

/// Without a communicator: a buffer, a stream and an event have a device of their own.
#[test]
fn buffers_streams_and_events_do_not_mix_devices() {
    let [here, there] = [0, 1].map(|ordinal| Device::new(backend(), ordinal));
    let (mut buffer, stream) = (Buffer::<u32>::zeroed(here, 2).unwrap(), OwnedStream::new(there));
    let stream = stream.unwrap();
    let stream = stream.stream();
    let mut event = Event::new(here).unwrap();
    let other = Buffer::<u32>::zeroed(there, 2).unwrap();
    let copied = buffer.copy_from(&other, STREAM).unwrap_err().to_string();
    assert!(copied.contains("found host memory of device 1 of backend cpu"), "{copied}");
    for refused in [
        buffer.fill_bytes(1, stream),
        buffer.write(&[1], stream),
        buffer.read_into(&mut [0], stream),
        buffer.copy_from(&[1_u32], stream),
        event.record(stream),
        stream.synchronize(here),
        stream.is_capturing(here).map(drop),
    ] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("expected a stream of device 0 of backend cpu"), "{text}");
        assert!(text.contains("found one of device 1 of backend cpu"), "{text}");
    }
    assert_eq!(buffer.to_vec(STREAM).unwrap(), [0, 0]);
    event.record(STREAM).unwrap();
    let mut later = Event::new(there).unwrap();
    later.record(stream).unwrap();
    let text = later.elapsed_since(&event).unwrap_err().to_string();
    assert!(text.contains("expected an event of device 1 of backend cpu"), "{text}");
    assert!(text.contains("found one of device 0 of backend cpu"), "{text}");
}

/// A buffer keeps no communicator, so that one can end, or be aborted, while buffers live.
#[test]
fn a_communicator_ends_while_its_buffers_live() {
    let kept = run_ranks(1, &CpuConfig::new(), |comm| {
        let buffer = Buffer::from_slice(&comm, &[7_u8, 8])?;
        comm.destroy()?;
        Ok::<_, Error>(buffer)
    });
    for buffer in kept {
        assert_eq!(buffer.unwrap().to_vec(STREAM).unwrap(), [7, 8]);
    }
}
