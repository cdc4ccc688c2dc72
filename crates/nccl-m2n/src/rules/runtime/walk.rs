//! Uses of a runtime that break each row.

use nccl_ext_test::stub::m2n as stub;

use crate::rules::walk::{Attempt, STREAM, assert_nothing_issued, no_call};
use crate::{DistTensor, DistTensorMut, Error, MemorySpace};

pub(in crate::rules) fn violate(row: &str) -> Error {
    let Attempt { source, destination, .. } = Attempt::good();
    let (runtime, _) = Attempt::good().runtime();
    let other = match row {
        "runtime.communicator-backend" => stub::backend(MemorySpace::Host),
        _ => no_call(row),
    };
    let comm = stub::comm_on(other, 4, 0);
    let mut to = DistTensorMut::inactive(&destination);
    let from = DistTensor::inactive(&source);
    let error = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
    assert_nothing_issued(row);
    assert!(!comm.is_marked_for_abort());
    error
}
