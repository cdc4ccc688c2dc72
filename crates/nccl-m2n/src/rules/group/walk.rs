//! Groups that break each row.

use crate::Placement::{Replicate, Shard};
use crate::rules::walk::{Attempt, STREAM, assert_nothing_issued, no_call, side};
use crate::{DistTensor, DistTensorMut, Error, Result, Settings};

pub(in crate::rules) fn violate(row: &str) -> Error {
    let (error, index) = match row {
        "group.entries" => too_many_entries(),
        "group.one-backend" => return runtime_of_another_backend(row),
        "group.empty-entries" => empty_entry(),
        "group.alias" => (share_memory(Settings::default(), 1).unwrap_err(), 1),
        _ => no_call(row),
    };
    assert!(matches!(error, Error::Entry { index: i, .. } if i == index), "{error:?}");
    assert_nothing_issued(row);
    error
}

/// The error, and the number of its entry.
fn too_many_entries() -> (Error, usize) {
    let Attempt { source, destination, .. } = Attempt::good();
    let (runtime, comm) = Attempt::good().runtime();
    let data = [0_u8; 2];
    let mut recorded = 0;
    let result = runtime.group(|group| -> Result<()> {
        loop {
            let from = DistTensor::new(&data, &source);
            group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)?;
            recorded += 1;
        }
    });
    (result.unwrap_err(), recorded)
}

/// No entry's error: the group would go on without it.
fn runtime_of_another_backend(row: &str) -> Error {
    let Attempt { source, destination, .. } = Attempt::good();
    let (runtime, comm) = Attempt::good().runtime();
    let (other, other_comm) = Attempt::good().runtime();
    let data = [0_u8; 2];
    let from = DistTensor::new(&data, &source);
    let result = runtime.group(|group| {
        group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)?;
        let to = DistTensorMut::inactive(&destination);
        group.reshard_on(&other, &other_comm, from, to, STREAM)
    });
    assert_nothing_issued(row);
    result.unwrap_err()
}

fn empty_entry() -> (Error, usize) {
    let Attempt { source, destination, .. } = Attempt::good();
    let (runtime, comm) = Attempt::good().runtime();
    let data = [0_u8; 2];
    let empty = side(&[2], 0, &[Shard(0)], &[0]);
    let none = empty.on(*destination.mesh(), &[Replicate]).unwrap();
    let result = runtime.group(|group| {
        let (from, to) = (DistTensor::new(&data, &source), DistTensorMut::inactive(&destination));
        group.reshard(&comm, from, to, STREAM)?;
        let (from, to) = (DistTensor::new(&data, &empty), DistTensorMut::inactive(&none));
        group.reshard(&comm, from, to, STREAM)
    });
    (result.unwrap_err(), 1)
}

/// Two entries whose sources begin so many bytes apart; each has two bytes.
fn share_memory(settings: Settings, offset: usize) -> Result<()> {
    let Attempt { source, destination, .. } = Attempt::good();
    let (runtime, comm) = Attempt { settings, ..Attempt::good() }.runtime();
    let data = [0_u8; 4];
    runtime.group(|group| {
        for at in [0, offset] {
            let from = DistTensor::new(&data[at..at + 2], &source);
            group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)?;
        }
        Ok(())
    })
}

/// M2N vectors G19, G21: touching ranges are fine, and sources may be shared where nothing is fused.
#[test]
fn memory_that_may_be_shared() {
    assert!(share_memory(Settings::default(), 2).is_ok());
    let split = Settings { split_comm: Some(true), ..Settings::default() };
    assert!(share_memory(split, 0).is_ok());
}
