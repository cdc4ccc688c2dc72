//! Walks the validation table: every row has a call that breaks it, beside the row's rules, and
//! the call's error names the row. A row without such a call fails the walk.

use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_test::stub::m2n as stub;

use super::*;
use crate::Placement::{Replicate, Shard};
use crate::{
    Agreement, Comm, Config, CopyAlgorithm, DataType, DistTensor, DistTensorMut, Error, Layout,
    MemorySpace, Mesh, Placement, Runtime, Settings, Stream,
};

pub(super) const STREAM: Stream<'static> = Stream::DEFAULT;

/// The error of a call that breaks the row of this name.
fn violate(row: &str) -> Error {
    match row.split_once('.').map_or(row, |(subject, _)| subject) {
        "agreement" => agreement::walk::violate(row),
        "call" => call::walk::violate(row),
        "config" => config::walk::violate(row),
        "group" => group::walk::violate(row),
        "layout" => layout::walk::violate(row),
        "local" => local::walk::violate(row),
        "mesh" => mesh::walk::violate(row),
        "runtime" => runtime::walk::violate(row),
        "settings" => settings::walk::violate(row),
        "transfer" => transfer::walk::violate(row),
        _ => no_call(row),
    }
}

/// Fails the walk.
pub(super) fn no_call(row: &str) -> ! {
    panic!("no violating call for {row}")
}

#[test]
fn every_row_is_broken_by_a_call_whose_error_names_it() {
    for row in all() {
        assert_names(&row, &violate(row.name));
    }
}

fn assert_names(row: &RuleInfo, error: &Error) {
    let error = match error {
        Error::Entry { error, .. } | Error::PeerFailed { error, .. } => error,
        other => other,
    };
    assert!(row.is_cause_of(error), "{}: {error:?}", row.name);
    assert_eq!(error.scope(), row.scope, "{}", row.name);
}

/// No tensor was passed to the library, and no group was issued.
pub(super) fn assert_nothing_issued(row: &str) {
    let calls = stub::take_calls();
    let issued = ["ncclReshard", "ncclReshardWithWindow", "ncclM2nGroupEnd"];
    let recorded = calls.contains(&"ncclM2nGroupAbort");
    assert!(recorded || !calls.iter().any(|call| issued.contains(call)), "{row}: {calls:?}");
    assert!(!calls.contains(&"ncclM2nGroupEnd"), "{row}: {calls:?}");
}

/// A layout of bytes.
pub(super) fn side(
    dims: &[usize],
    start: usize,
    placements: &[Placement],
    shape: &[usize],
) -> Layout {
    Layout::new(Mesh::new(dims, start).unwrap(), placements, shape, DataType::Uint8).unwrap()
}

/// Two layouts, and the communicator and settings that they are resharded under.
pub(super) struct Attempt {
    pub(super) ranks: usize,
    pub(super) source: Layout,
    pub(super) destination: Layout,
    pub(super) settings: Settings,
    pub(super) memory: MemorySpace,
    pub(super) domain: Option<i32>,
}

impl Attempt {
    /// Two ranks of four send to the two others.
    pub(super) fn good() -> Self {
        Self::between(4, side(&[2], 0, &[Shard(0)], &[2]), side(&[2], 2, &[Replicate], &[4]))
    }

    pub(super) fn between(ranks: usize, source: Layout, destination: Layout) -> Self {
        let (settings, memory) = (Settings::default(), MemorySpace::Host);
        Self { ranks, source, destination, settings, memory, domain: None }
    }

    pub(super) fn algorithm(mut self, copy_algorithm: CopyAlgorithm) -> Self {
        self.settings.copy_algorithm = copy_algorithm;
        self
    }

    /// A runtime whose ranks compare nothing, and rank 0 of its communicator.
    pub(super) fn runtime(&self) -> (Runtime, Comm) {
        self.runtime_on_rank(0)
    }

    pub(super) fn runtime_on_rank(&self, rank: usize) -> (Runtime, Comm) {
        stub::set_domain(self.domain);
        let backend = stub::backend(self.memory);
        let config = Config::new().agreement(Agreement::Off);
        let runtime = Runtime::new_in(backend, &config, self.settings).unwrap();
        (runtime, stub::comm_on(backend, self.ranks, rank))
    }
}

/// A rule that every rank checks does not stop the walk of native errors: those poison.
#[test]
fn a_native_error_poisons_the_runtime() {
    let (runtime, comm) = Attempt::good().runtime();
    let Attempt { source, destination, .. } = Attempt::good();
    let data = [0_u8; 2];
    let from = DistTensor::new(&data, &source);
    let mut to = DistTensorMut::inactive(&destination);
    stub::fail_next("ncclReshard", ncclResult_t::ncclInvalidUsage);
    let error = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
    assert_eq!(error.to_string(), "ncclReshard returned ncclInvalidUsage (5): the stub's words");
    let again = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
    assert!(matches!(again, Error::Poisoned { .. }), "{again:?}");
    let grouped = runtime.group(|_| Ok(())).unwrap_err();
    assert!(matches!(grouped, Error::Poisoned { .. }), "{grouped:?}");
    assert!(comm.is_marked_for_abort());
    stub::take_calls();
    let ended = runtime.finalize().unwrap_err();
    assert!(matches!(*ended.error, Error::Poisoned { .. }), "{ended:?}");
}
