//! Walks the validation table: every row has a call that breaks it, the error names the row, and
//! nothing reached the native library. A row without such a call fails the walk.

use nccl_ext_core::raw::ncclResult_t;

use super::{RuleInfo, call, config, group, layout, local, mesh};
use crate::Placement::{Replicate, Shard};
use crate::*;
use nccl_ext_test::stub::m2n as stub;

const STREAM: Stream<'static> = Stream::DEFAULT;

/// The error names the row.
fn assert_names(info: &RuleInfo, error: &Error) {
    let error = match error {
        Error::Entry { error, .. } => error,
        other => other,
    };
    match error {
        Error::Invalid { name, argument, rule, scope, .. } => {
            let named = (*name, *argument, *rule);
            assert_eq!(named, (info.name, info.argument, info.rule));
            assert_eq!(*scope, info.scope, "{}", info.name);
        }
        other => panic!("{}: {other:?}", info.name),
    }
}

/// No tensor was passed to the library, and no group was issued.
fn assert_nothing_issued(info: &RuleInfo) {
    let calls = stub::take_calls();
    let issued = ["ncclReshard", "ncclReshardWithWindow", "ncclM2nGroupEnd"];
    let recorded = calls.contains(&"ncclM2nGroupAbort");
    assert!(
        recorded || !calls.iter().any(|call| issued.contains(call)),
        "{}: {calls:?}",
        info.name
    );
    assert!(!calls.contains(&"ncclM2nGroupEnd"), "{}: {calls:?}", info.name);
}

fn side(dims: &[usize], start: usize, placements: &[Placement], shape: &[usize]) -> Layout {
    Layout::new(Mesh::new(dims, start).unwrap(), placements, shape, DataType::Uint8).unwrap()
}

fn off() -> Config {
    Config::new().agreement(Agreement::Off)
}

#[test]
fn every_config_rule() {
    for rule in config::RULES {
        let config = match rule.info.name {
            "config.max-cta" => Config::new().max_cta(Some(0)),
            name => panic!("no violating call for {name}"),
        };
        let made = Runtime::new(stub::backend(MemorySpace::Host), &config);
        assert_names(&rule.info, &made.unwrap_err());
        assert_eq!(stub::take_calls(), [""; 0]);
    }
}

#[test]
fn every_mesh_rule() {
    for rule in mesh::RULES {
        let made = match rule.info.name {
            "mesh.dimensions" => Mesh::new(&[1, 1, 1], 0),
            "mesh.positive" => Mesh::new(&[2, 0], 0),
            "mesh.size" => Mesh::new(&[65536, 65536], 0),
            "mesh.interval" => Mesh::new(&[2], 2_147_483_646),
            name => panic!("no violating call for {name}"),
        };
        assert_names(&rule.info, &made.unwrap_err());
    }
    for rule in mesh::FROM_RANKS {
        let made = match rule.info.name {
            "mesh.ranks-exist" => Mesh::from_ranks(&[]),
            "mesh.rows-equal" => Mesh::from_rank_grid(&[&[0, 1][..], &[2]]),
            "mesh.contiguous" => Mesh::from_ranks(&[1, 0]),
            name => panic!("no violating call for {name}"),
        };
        assert_names(&rule.info, &made.unwrap_err());
    }
}

#[test]
fn every_layout_rule() {
    let mesh = |dims: &[usize]| Mesh::new(dims, 0).unwrap();
    for rule in layout::RULES {
        let (two, grid) = (mesh(&[2]), mesh(&[2, 2]));
        let (bytes, halves) = (DataType::Uint8, DataType::Float16);
        let made = match rule.info.name {
            "layout.dimensions" => Layout::new(two, &[Replicate], &[1; 4], bytes),
            "layout.data-type" => Layout::new(two, &[Replicate], &[1], DataType::Float4x2),
            "layout.placements" => Layout::new(grid, &[Replicate], &[1], bytes),
            "layout.shard-dimension" => Layout::new(two, &[Shard(-2)], &[1], bytes),
            "layout.one-shard" => Layout::new(grid, &[Shard(0), Shard(0)], &[1], bytes),
            "layout.extent" => Layout::new(two, &[Shard(0)], &[1 << 63], bytes),
            "layout.local-bytes" => Layout::new(two, &[Replicate], &[1 << 63], halves),
            "layout.global-bytes" => Layout::new(two, &[Shard(0)], &[1 << 62], halves),
            name => panic!("no violating call for {name}"),
        };
        assert_names(&rule.info, &made.unwrap_err());
    }
}

/// A call that breaks a rule about layouts, settings and fabric.
struct Attempt {
    ranks: usize,
    source: Layout,
    destination: Layout,
    settings: Settings,
    memory: MemorySpace,
    domain: Option<i32>,
}

impl Attempt {
    /// Two ranks of four send to the two others.
    fn good() -> Self {
        Self::between(4, side(&[2], 0, &[Shard(0)], &[2]), side(&[2], 2, &[Replicate], &[4]))
    }

    fn between(ranks: usize, source: Layout, destination: Layout) -> Self {
        let (settings, memory) = (Settings::default(), MemorySpace::Host);
        Self { ranks, source, destination, settings, memory, domain: None }
    }

    fn algorithm(mut self, copy_algorithm: CopyAlgorithm) -> Self {
        self.settings.copy_algorithm = copy_algorithm;
        self
    }

    fn breaking(rule: &str) -> Self {
        let (pipe, direct) = (CopyAlgorithm::Pipe, CopyAlgorithm::Direct);
        let from = |dims: &[usize], start| side(dims, start, &[Shard(0)], &[2]);
        let to = |dims: &[usize], start, local| side(dims, start, &[Shard(0)], &[local]);
        let copies = |dims: &[usize], start, local| side(dims, start, &[Replicate], &[local]);
        let mut good = Self::good();
        let Self { source, destination, .. } = good;
        match rule {
            "call.source-in-communicator" => Self::between(2, from(&[3], 0), destination),
            "call.destination-in-communicator" => Self::between(3, source, destination),
            "call.disjoint" => Self::between(4, source, copies(&[2], 1, 4)),
            "call.pipe-disjoint" => {
                Self::between(1, copies(&[1], 0, 4), copies(&[1], 0, 4)).algorithm(pipe)
            }
            "call.dimensions" => Self::between(4, source, side(&[2], 2, &[Replicate], &[4, 1])),
            "call.data-type" => {
                let mesh = *destination.mesh();
                good.destination = Layout::new(mesh, &[Replicate], &[4], DataType::Int8).unwrap();
                good
            }
            "call.global-shape" => Self::between(4, source, copies(&[2], 2, 6)),
            "call.staging" => {
                let bytes = (1 << 31) + 1;
                Self::between(2, copies(&[1], 0, bytes), copies(&[1], 1, bytes))
            }
            "call.signals" => {
                good.settings.ctas = 1 << 31;
                good
            }
            "call.not-empty" => {
                Self::between(2, copies(&[1], 0, 0), copies(&[1], 1, 0)).algorithm(direct)
            }
            "call.single-domain-sources" => Self::between(34, from(&[33], 0), copies(&[1], 33, 66)),
            "call.sources" => Self::between(18, from(&[17], 1), copies(&[1], 0, 34)),
            "call.targets" => Self::between(66, copies(&[1], 0, 65), to(&[65], 1, 1)),
            "call.replicas" => Self::between(131, copies(&[1], 0, 1), copies(&[130], 1, 1)),
            "call.pipe-replicas" => {
                Self::between(67, copies(&[1], 0, 1), copies(&[66], 1, 1)).algorithm(pipe)
            }
            "call.pipe-peers" => {
                let mut far = Self::between(18, copies(&[1], 0, 17), to(&[17], 1, 1));
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
            name => panic!("no violating call for {name}"),
        }
    }

    fn runtime(&self) -> (Runtime, Comm) {
        stub::set_domain(self.domain);
        let backend = stub::backend(self.memory);
        let runtime = Runtime::new_in(backend, &off(), self.settings).unwrap();
        (runtime, stub::comm_on(backend, self.ranks, 0))
    }
}

#[test]
fn every_rule_of_a_call() {
    for rule in call::PAIR.iter().map(|rule| rule.info).chain(call::LIMITS.iter().map(|r| r.info)) {
        let attempt = Attempt::breaking(rule.name);
        let (runtime, comm) = attempt.runtime();
        let source = DistTensor::inactive(&attempt.source);
        let mut destination = DistTensorMut::inactive(&attempt.destination);
        let error = runtime.reshard(&comm, &source, &mut destination, STREAM).unwrap_err();
        assert_names(&rule, &error);
        assert_nothing_issued(&rule);
        // The same in a group, with the entry's number.
        let recorded = runtime.group(|group| {
            let destination = DistTensorMut::inactive(&attempt.destination);
            group.reshard(&comm, DistTensor::inactive(&attempt.source), destination, STREAM)
        });
        let error = recorded.unwrap_err();
        assert!(matches!(error, Error::Entry { index: 0, .. }), "{error:?}");
        assert_names(&rule, &error);
        assert_nothing_issued(&rule);
        // An error of all ranks leaves the runtime usable.
        assert!(runtime.usable().is_ok() && runtime.member(&comm).unwrap().in_step().is_ok());
    }
    stub::set_domain(None);
}

#[test]
fn every_local_rule() {
    for rule in local::RULES {
        let source_rank = 0;
        let destination_rank = 2;
        let Attempt { source, destination, .. } = Attempt::good();
        let (full, short, wrong) = ([0_u8; 2], [0_u8; 1], [0_i8; 2]);
        let (rank, from) = match rule.info.name {
            "local.source-memory" => (source_rank, DistTensor::inactive(&source)),
            "local.destination-memory" => (destination_rank, DistTensor::inactive(&source)),
            "local.data-type" => (source_rank, DistTensor::new(&wrong, &source)),
            "local.bytes" => (source_rank, DistTensor::new(&short, &source)),
            name => panic!("no violating call for {name}"),
        };
        assert!(DistTensor::new(&full, &source).is_participating());
        let backend = stub::backend(MemorySpace::Host);
        let comm = stub::comm_on(backend, 4, rank);
        let runtime = Runtime::new(backend, &off()).unwrap();
        let mut to = DistTensorMut::inactive(&destination);
        let error = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
        assert_names(&rule.info, &error);
        assert_nothing_issued(&rule.info);
        // Its peers went on: this rank is behind.
        let again = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
        assert!(matches!(again, Error::Diverged { .. }), "{again:?}");
        assert!(comm.is_marked_for_abort());

        let comm = stub::comm_on(backend, 4, rank);
        let error = runtime.group(|group| {
            group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)
        });
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Entry { index: 0, .. }), "{error:?}");
        assert_names(&rule.info, &error);
        assert_nothing_issued(&rule.info);
    }
}

#[test]
fn a_capturing_stream() {
    let backend = stub::backend(MemorySpace::Device);
    let comm = stub::comm_on(backend, 2, 0);
    let runtime = Runtime::new(backend, &off()).unwrap();
    let (source, destination) =
        (side(&[1], 0, &[Replicate], &[4]), side(&[1], 1, &[Replicate], &[4]));
    let data = Buffer::<u8>::zeroed(&comm, 4).unwrap();
    stub::set_capturing(true);
    let from = DistTensor::new(&data, &source);
    let mut to = DistTensorMut::inactive(&destination);
    let error = runtime.reshard(&comm, &from, &mut to, STREAM).unwrap_err();
    stub::set_capturing(false);
    assert_names(&local::CAPTURE, &error);
    assert_nothing_issued(&local::CAPTURE);
}

#[test]
fn every_group_rule() {
    for rule in group::RULES {
        let (runtime, comm) = Attempt::good().runtime();
        let Attempt { source, destination, .. } = Attempt::good();
        let data = [0_u8; 2];
        let from = DistTensor::new(&data, &source);
        let mut recorded = 0;
        let result = runtime.group(|group| match rule.info.name {
            "group.entries" => loop {
                let to = DistTensorMut::inactive(&destination);
                group.reshard(&comm, from, to, STREAM)?;
                recorded += 1;
            },
            "group.empty-entries" => {
                let to = DistTensorMut::inactive(&destination);
                group.reshard(&comm, from, to, STREAM)?;
                recorded = 1;
                let empty = source.on(*source.mesh(), &[Shard(0)]).unwrap();
                let empty = Layout::new(*empty.mesh(), &[Shard(0)], &[0], DataType::Uint8)?;
                let none = empty.on(*destination.mesh(), &[Replicate])?;
                let (from, to) = (DistTensor::new(&data, &empty), DistTensorMut::inactive(&none));
                group.reshard(&comm, from, to, STREAM)
            }
            name => panic!("no violating call for {name}"),
        });
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Entry { index, .. } if index == recorded), "{error:?}");
        assert_names(&rule.info, &error);
        assert_nothing_issued(&rule.info);
    }
}

#[test]
fn entries_that_share_memory() {
    let Attempt { source, destination, .. } = Attempt::good();
    let data = [0_u8; 4];
    let share = |settings: Settings, offset: usize| {
        let backend = stub::backend(MemorySpace::Host);
        let runtime = Runtime::new_in(backend, &off(), settings).unwrap();
        let comm = stub::comm_on(backend, 4, 0);
        let result = runtime.group(|group| {
            for at in [0, offset] {
                let from = DistTensor::new(&data[at..at + 2], &source);
                group.reshard(&comm, from, DistTensorMut::inactive(&destination), STREAM)?;
            }
            Ok(())
        });
        stub::take_calls();
        result
    };
    let split = Settings { split_comm: Some(true), ..Settings::default() };
    let error = share(Settings::default(), 1).unwrap_err();
    assert!(matches!(error, Error::Entry { index: 1, .. }), "{error:?}");
    assert_names(&group::ALIAS, &error);
    // M2N vectors G19, G21: touching ranges are fine, and sources may be shared where nothing is fused.
    assert!(share(Settings::default(), 2).is_ok());
    assert!(share(split, 0).is_ok());
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
