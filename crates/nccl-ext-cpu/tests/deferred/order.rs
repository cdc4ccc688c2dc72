//! What has an order gives right results.

use nccl_ext_core::{Buffer, Comm, Device, Error, Event, OwnedStream, Reduction};
use nccl_ext_cpu::{CpuConfig, deferred_backend, run_ranks};

#[test]
fn a_sum_is_right_on_one_stream_whatever_the_seed() {
    for seed in 0..50 {
        let sums = run_ranks(3, &CpuConfig::new().deferred(seed), |comm: Comm| {
            let stream = OwnedStream::new(&comm)?;
            let mine = Buffer::from_slice(&comm, &[comm.rank() as i32, 10])?;
            let mut sum = Buffer::<i32>::zeroed(&comm, 2)?;
            comm.all_reduce(&mine, &mut sum, Reduction::Sum, stream.stream())?;
            sum.to_vec(stream.stream())
        });
        for sum in sums {
            assert_eq!(sum.unwrap(), [3, 30], "seed {seed}");
        }
    }
}

#[test]
fn work_is_not_done_when_its_call_returns() -> Result<(), Error> {
    let (send, receive) = std::sync::mpsc::channel::<bool>();
    let receive = std::sync::Mutex::new(receive);
    let results = run_ranks(2, &CpuConfig::new().deferred(1), |comm: Comm| {
        let stream = OwnedStream::new(&comm)?;
        let mut event = Event::new(&comm)?;
        let mine = Buffer::from_slice(&comm, &[1_i32])?;
        let mut sum = Buffer::<i32>::zeroed(&comm, 1)?;
        if comm.rank() == 1 {
            // Rank 0 has returned from its call, and this rank has not made its own.
            let done = receive.lock().unwrap().recv().unwrap();
            assert!(!done);
        }
        comm.all_reduce(&mine, &mut sum, Reduction::Sum, stream.stream())?;
        event.record(stream.stream())?;
        if comm.rank() == 0 {
            send.send(event.is_done()?).unwrap();
        }
        event.synchronize()?;
        assert!(event.is_done()? && stream.stream().is_done(&comm)?);
        sum.to_vec(stream.stream())
    });
    for sum in results {
        assert_eq!(sum.unwrap(), [2]);
    }
    Ok(())
}

#[test]
fn fresh_memory_is_not_zero_by_chance_and_slices_are_refused() -> Result<(), Error> {
    let device = Device::new(deferred_backend(), 0);
    let stream = OwnedStream::new(device)?;
    assert_eq!(Buffer::<u8>::zeroed(device, 3)?.to_vec(stream.stream())?, [0, 0, 0]);
    let results = run_ranks(1, &CpuConfig::new().deferred(1), |comm: Comm| {
        let stream = OwnedStream::new(&comm)?;
        comm.all_reduce(&[1_i32], &mut [0_i32], Reduction::Sum, stream.stream())
    });
    let error = results.into_iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("host memory") && error.contains("device memory"), "{error}");
    Ok(())
}

/// NCCL puts the collectives of a communicator in the order of their calls, whatever their streams.
#[test]
fn collectives_on_two_streams_have_the_order_of_their_calls() {
    for seed in 0..20 {
        let sums = run_ranks(3, &CpuConfig::new().deferred(seed), |comm: Comm| {
            let owned = [OwnedStream::new(&comm)?, OwnedStream::new(&comm)?];
            let [a, b] = [owned[0].stream(), owned[1].stream()];
            let mine = Buffer::from_slice(&comm, &[comm.rank() as i32])?;
            let [mut sum, mut most] =
                [Buffer::<i32>::zeroed(&comm, 1)?, Buffer::<i32>::zeroed(&comm, 1)?];
            for _ in 0..6 {
                comm.all_reduce(&mine, &mut sum, Reduction::Sum, a)?;
                comm.all_reduce(&mine, &mut most, Reduction::Max, b)?;
            }
            Ok::<_, Error>([sum.to_vec(a)?[0], most.to_vec(b)?[0]])
        });
        for sum in sums {
            assert_eq!(sum.unwrap(), [3, 2], "seed {seed}");
        }
    }
}
