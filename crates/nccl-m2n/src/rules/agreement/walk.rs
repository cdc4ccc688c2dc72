//! Exchanges that break each row.

use nccl_ext_test::stub::m2n as stub;

use crate::rules::walk::{Attempt, STREAM, assert_nothing_issued, no_call};
use crate::{Agreement, Config, DistTensor, DistTensorMut, Error, MemorySpace, Runtime};

pub(in crate::rules) fn violate(row: &str) -> Error {
    let Attempt { source, destination, .. } = Attempt::good();
    let backend = stub::backend(MemorySpace::Host);
    let comm = stub::comm_on(backend, 4, 0);
    let config = Config::new().agreement(Agreement::EveryCall);
    let runtime = Runtime::new(backend, &config).unwrap();
    let data = [0_u8; 2];
    match row {
        // Rank 3 has an error that is no row.
        "agreement.peer-error" => stub::set_peers(|rank, words| words[0] = u64::from(rank == 3)),
        _ => no_call(row),
    }
    let from = DistTensor::new(&data, &source);
    let mut to = DistTensorMut::inactive(&destination);
    let error = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
    stub::set_peers(|_, _| ());
    assert!(matches!(error, Error::PeerFailed { rank: 3, .. }), "{error:?}");
    assert_nothing_issued(row);
    // All ranks have it: they may go on.
    runtime.reshard(&comm, &from, &mut to, STREAM).unwrap();
    stub::take_calls();
    error
}
