//! Two devices in one world: a rank reshards from and to memory of its own device, on its own
//! device's streams (case A1).

use nccl_ext_cpu::run_ranks;
use nccl_ext_test::worlds::{STREAM, config, error_of, failed_peer};
use nccl_m2n::{
    Buffer, Comm, Config, Device, DistTensor, DistTensorMut, Error, OwnedStream, Runtime,
};

use crate::common::layout;

/// Rank 0 sends four bytes to rank 1, which does it with what `place` gives of device 0. Its error.
fn refusal(tile_elsewhere: bool, stream_elsewhere: bool) -> String {
    let (source, destination) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let outcomes = run_ranks(2, &config().devices(2), |comm: Comm| {
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        let (home, other) = (comm.device(), Device::new(comm.backend(), 0));
        let on = |elsewhere| if elsewhere && comm.rank() == 1 { other } else { home };
        let stream = OwnedStream::new(on(stream_elsewhere))?;
        if comm.rank() == 0 {
            let tile = Buffer::from_slice(home, &[1_u8, 2, 3, 4])?;
            let mut none = DistTensorMut::inactive(&destination);
            return runtime.reshard(&comm, &DistTensor::new(&tile, &source), &mut none, STREAM);
        }
        let mut tile = Buffer::<u8>::zeroed(on(tile_elsewhere), 4)?;
        let mut into = DistTensorMut::new(&mut tile, &destination);
        runtime.reshard(&comm, &DistTensor::inactive(&source), &mut into, stream.stream())
    });
    // The other rank is told the rule: what one rank alone finds wrong is exchanged.
    let Error::Invalid { rule, .. } = error_of(&outcomes[1]) else { panic!("a broken rule") };
    let (rank, told) = failed_peer(error_of(&outcomes[0]));
    assert_eq!((rank, told.contains(rule)), (1, true), "{told}");
    error_of(&outcomes[1]).to_string()
}

#[test]
fn tiles_are_on_the_ranks_device() {
    let text = refusal(true, false);
    assert!(text.contains("expected host memory of device 1 of backend cpu"), "{text}");
    assert!(text.contains("found host memory of device 0 of backend cpu"), "{text}");
}

#[test]
fn streams_are_on_the_ranks_device() {
    let text = refusal(false, true);
    assert!(text.contains("expected a stream of device 1 of backend cpu"), "{text}");
    assert!(text.contains("found one of device 0 of backend cpu"), "{text}");
}
