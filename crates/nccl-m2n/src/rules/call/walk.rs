//! Calls that break each row.

use crate::Placement::{Replicate, Shard};
use crate::rules::walk::{Attempt, STREAM, assert_nothing_issued, no_call, side};
use crate::{
    Buckets, CopyAlgorithm, DataType, DistTensor, DistTensorMut, Error, Layout, MemorySpace,
};

/// The error, which a call and an entry of a group have in common.
pub(in crate::rules) fn violate(row: &str) -> Error {
    let attempt = attempt(row);
    let (runtime, comm) = attempt.runtime();
    let source = DistTensor::inactive(&attempt.source);
    let mut destination = DistTensorMut::inactive(&attempt.destination);
    let error = runtime.reshard(&comm, &source, &mut destination, STREAM).unwrap_err();
    assert_nothing_issued(row);
    // The same in a group, with the entry's number.
    let grouped = runtime.group(|group| {
        let destination = DistTensorMut::inactive(&attempt.destination);
        group.reshard(&comm, DistTensor::inactive(&attempt.source), destination, STREAM)
    });
    let Err(Error::Entry { index: 0, error: grouped }) = grouped else { panic!("{grouped:?}") };
    assert_eq!(grouped.to_string(), error.to_string());
    assert_nothing_issued(row);
    // An error of all ranks leaves the runtime usable.
    assert!(runtime.check_not_poisoned().is_ok());
    assert!(runtime.comm_state(&comm).unwrap().check_in_step().is_ok());
    error
}

/// What breaks the row.
fn attempt(row: &str) -> Attempt {
    let (pipe, direct) = (CopyAlgorithm::Pipe, CopyAlgorithm::Direct);
    let from = |dims: &[usize], start| side(dims, start, &[Shard(0)], &[2]);
    let to = |dims: &[usize], start, local| side(dims, start, &[Shard(0)], &[local]);
    let copies = |dims: &[usize], start, local| side(dims, start, &[Replicate], &[local]);
    let mut good = Attempt::good();
    let Attempt { source, destination, .. } = good;
    match row {
        "call.source-in-communicator" => Attempt::between(2, from(&[3], 0), destination),
        "call.destination-in-communicator" => Attempt::between(3, source, destination),
        "call.disjoint" => Attempt::between(4, source, copies(&[2], 1, 4)),
        "call.pipe-disjoint" => {
            Attempt::between(1, copies(&[1], 0, 4), copies(&[1], 0, 4)).algorithm(pipe)
        }
        "call.dimensions" => Attempt::between(4, source, side(&[2], 2, &[Replicate], &[4, 1])),
        "call.data-type" => {
            let mesh = *destination.mesh();
            good.destination = Layout::new(mesh, &[Replicate], &[4], DataType::Int8).unwrap();
            good
        }
        "call.global-shape" => Attempt::between(4, source, copies(&[2], 2, 6)),
        "call.staging" => {
            let bytes = (1 << 31) + 1;
            Attempt::between(2, copies(&[1], 0, bytes), copies(&[1], 1, bytes))
        }
        "call.staging-slot" => cut_by_four("4294967296:2", 1 << 17),
        "call.signals" => {
            good.settings.ctas = 1 << 31;
            good
        }
        "call.not-empty" => {
            Attempt::between(2, copies(&[1], 0, 0), copies(&[1], 1, 0)).algorithm(direct)
        }
        "call.single-domain-sources" => Attempt::between(34, from(&[33], 0), copies(&[1], 33, 66)),
        "call.sources" => Attempt::between(18, from(&[17], 1), copies(&[1], 0, 34)),
        "call.targets" => Attempt::between(66, copies(&[1], 0, 65), to(&[65], 1, 1)),
        "call.replicas" => Attempt::between(131, copies(&[1], 0, 1), copies(&[130], 1, 1)),
        "call.pipe-replicas" => {
            Attempt::between(67, copies(&[1], 0, 1), copies(&[66], 1, 1)).algorithm(pipe)
        }
        "call.pipe-peers" => {
            let mut far = Attempt::between(18, copies(&[1], 0, 17), to(&[17], 1, 1));
            far.memory = MemorySpace::Device;
            far.domain = Some(1);
            far.algorithm(pipe)
        }
        "call.domain-override" => {
            good.settings.destination_domain = Some(5);
            (good.source, good.destination) = (from(&[2], 2), copies(&[2], 0, 4));
            good
        }
        "call.network" => {
            (good.source, good.destination) = (from(&[2], 2), copies(&[2], 0, 4));
            good.memory = MemorySpace::Device;
            good
        }
        _ => no_call(row),
    }
}

/// Case M12 with these staging slots: one axis is cut on one side, the other on the other. There is
/// a ninth rank, which holds nothing.
fn cut_by_four(slots: &str, edge: usize) -> Attempt {
    let rows = side(&[1, 4], 0, &[Replicate, Shard(0)], &[edge / 4, edge]);
    let columns = side(&[1, 4], 4, &[Replicate, Shard(1)], &[edge, edge / 4]);
    let mut attempt = Attempt::between(9, rows, columns);
    attempt.settings.buckets = Buckets::parse(slots).unwrap();
    attempt
}

/// Case M12: it is the slot that counts, which may be larger than what it has to hold.
#[test]
fn slots_below_2_to_the_32_are_taken_and_no_others() {
    let outcome = |slots: &str, edge| {
        let attempt = cut_by_four(slots, edge);
        let (runtime, comm) = attempt.runtime_on_rank(8);
        let from = DistTensor::inactive(&attempt.source);
        let mut to = DistTensorMut::inactive(&attempt.destination);
        runtime.reshard(&comm, &from, &mut to, STREAM).map_err(|error| error.to_string())
    };
    let tiles_of_3_gib = 113_508;
    assert_eq!(outcome("3072m:2", tiles_of_3_gib), Ok(()));
    assert_eq!(outcome("4294967295", tiles_of_3_gib), Ok(()));
    assert_eq!(outcome("4k,4294967296", 8), Ok(()));
    let error = outcome("4294967296", 8).unwrap_err();
    assert!(error.contains("a slot of 4294967296 bytes for 2048 bytes"), "{error}");
    let error = outcome("4k,8192m", 1 << 17).unwrap_err();
    assert!(error.contains("a slot of 8589934592 bytes for 4294967296 bytes"), "{error}");
}
