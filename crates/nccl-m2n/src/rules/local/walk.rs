//! Memory and streams of one rank that break each row.

use nccl_ext_test::stub::m2n as stub;

use crate::Placement::Replicate;
use crate::rules::walk::{Attempt, STREAM, assert_nothing_issued, no_call, side};
use crate::{Buffer, DistTensor, DistTensorMut, Error, MemorySpace};

pub(in crate::rules) fn violate(row: &str) -> Error {
    let (source_rank, destination_rank) = (0, 2);
    let Attempt { source, .. } = Attempt::good();
    let (full, short, wrong) = ([0_u8; 2], [0_u8; 1], [0_i8; 2]);
    let (rank, from) = match row {
        "local.source-memory" => (source_rank, DistTensor::inactive(&source)),
        "local.destination-memory" => (destination_rank, DistTensor::inactive(&source)),
        "local.data-type" => (source_rank, DistTensor::new(&wrong, &source)),
        "local.bytes" => (source_rank, DistTensor::new(&short, &source)),
        "local.capture" => return capture(row),
        _ => no_call(row),
    };
    assert!(DistTensor::new(&full, &source).is_participating());
    reshard_alone_and_in_a_group(row, &Attempt::good(), rank, from)
}

/// A stream that is being captured.
fn capture(row: &str) -> Error {
    let (source, destination) =
        (side(&[1], 0, &[Replicate], &[4]), side(&[1], 1, &[Replicate], &[4]));
    let mut attempt = Attempt::between(2, source, destination);
    attempt.memory = MemorySpace::Device;
    let (runtime, comm) = attempt.runtime();
    let data = Buffer::<u8>::zeroed(&comm, 4).unwrap();
    stub::set_capturing(true);
    let from = DistTensor::new(&data, &attempt.source);
    let mut to = DistTensorMut::inactive(&attempt.destination);
    let error = runtime.reshard(&comm, &from, &mut to, STREAM);
    stub::set_capturing(false);
    assert_nothing_issued(row);
    error.unwrap_err()
}

/// The error, which a call and an entry of a group have in common.
fn reshard_alone_and_in_a_group(
    row: &str,
    attempt: &Attempt,
    rank: usize,
    from: DistTensor<'_>,
) -> Error {
    let (runtime, comm) = attempt.runtime_on_rank(rank);
    let mut to = DistTensorMut::inactive(&attempt.destination);
    let error = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
    assert_nothing_issued(row);
    // Its peers went on: this rank is behind.
    let again = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
    assert!(matches!(again, Error::Diverged { .. }), "{again:?}");
    assert!(comm.is_marked_for_abort());

    let (runtime, comm) = attempt.runtime_on_rank(rank);
    let grouped = runtime.group(|group| {
        group.reshard(&comm, from, DistTensorMut::inactive(&attempt.destination), STREAM)
    });
    let Err(Error::Entry { index: 0, error: grouped }) = grouped else { panic!("{grouped:?}") };
    assert_eq!(grouped.to_string(), error.to_string());
    assert_nothing_issued(row);
    error
}
