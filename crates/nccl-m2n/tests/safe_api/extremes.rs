//! Sizes at the edge of what fits, and backends that keep no caches.

use std::time::{Duration, Instant};

use nccl_ext_cpu::{CpuConfig, unique_id};
use nccl_m2n::Placement::{Replicate, Shard};
use nccl_m2n::plan::{Conditions, Plan};
use nccl_m2n::{
    Comm, Config, CopyAlgorithm, DataType, Group, Layout, Mesh, Result, Runtime, Settings, Version,
};

use crate::common::{layout, reshard};

fn replicated(start: usize, ranks: usize, shape: &[usize], data_type: DataType) -> Result<Layout> {
    Layout::new(Mesh::new(&[ranks], start)?, &[Replicate], shape, data_type)
}

#[test]
fn a_tile_too_large_but_for_an_empty_dimension_is_refused_wherever_that_stands() {
    let huge = 1 << 40;
    for shape in [[0, huge, huge], [huge, 0, huge], [huge, huge, 0]] {
        let error = replicated(0, 1, &shape, DataType::Uint8).unwrap_err().to_string();
        assert!(error.contains("the bytes of a tile fit size_t"), "{error}");
    }
    for shape in [[0, usize::MAX], [usize::MAX, 0]] {
        let error = replicated(0, 1, &shape, DataType::Float64).unwrap_err().to_string();
        assert!(error.contains("the bytes of a tile fit size_t"), "{error}");
        let from = replicated(0, 1, &shape, DataType::Uint8).unwrap();
        let to = from.on(Mesh::new(&[1], 1).unwrap(), &[Replicate]).unwrap();
        let plan = Plan::new(&from, &to, &Conditions::one_host(2)).unwrap();
        assert_eq!(plan.prove().unwrap().bytes, 0);
    }
}

#[test]
fn sums_of_bytes_that_do_not_fit_stay_at_the_most() {
    let from = replicated(0, 1, &[1 << 62], DataType::Uint8).unwrap();
    let to = replicated(1, 8, &[1 << 62], DataType::Uint8).unwrap();
    let mut settings = Settings::default();
    settings.copy_algorithm = CopyAlgorithm::Direct;
    let conditions = Conditions::domains(9, 9).settings(settings);
    let plan = Plan::new(&from, &to, &conditions).unwrap();
    assert_eq!(plan.prove().unwrap().bytes, usize::MAX);
    let traffic = plan.traffic();
    assert_eq!((traffic.local_bytes, traffic.sent[0]), (usize::MAX, usize::MAX));
    assert_eq!(traffic.received[8], 1 << 62);
}

/// What differs in the conditions differs in the digest, also at the edge of a word or a digit.
#[test]
fn digests_tell_versions_and_the_largest_options_apart() {
    let (from, to) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let conditions = Conditions::one_host(2);
    let version = |minor, patch| {
        let mut conditions = conditions;
        conditions.fabric.nccl = Version::new(2, minor, patch);
        Plan::new(&from, &to, &conditions).unwrap()
    };
    let domain = |size| {
        let mut settings = Settings::default();
        settings.destination_domain = size;
        Plan::new(&from, &to, &conditions.settings(settings)).unwrap()
    };
    for (a, b) in [
        (version(30, 100), version(31, 0)),
        (domain(Some(usize::MAX)), domain(Some(usize::MAX - 1))),
        (domain(Some(0)), domain(None)),
    ] {
        assert_ne!(a.digest(), b.digest());
        assert!(a.first_difference(&b).is_some());
    }
}

/// The limits of a large plan are known without a look at each of its ranks.
#[test]
fn the_limits_of_a_large_plan_take_no_time() {
    let n = 16_000;
    let side = |start| {
        let mesh = Mesh::new(&[n, n], start).unwrap();
        Layout::new(mesh, &[Replicate, Shard(0)], &[1], DataType::Uint8).unwrap()
    };
    let conditions = Conditions::domains(2 * n * n, 8);
    let plan = Plan::new(&side(0), &side(n * n), &conditions).unwrap();
    let started = Instant::now();
    assert_eq!(plan.most_replicas(), 1);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

/// A runtime that cannot be finalised where it is dropped, in a group, leaves no address behind.
#[test]
fn without_caches_no_address_is_remembered_of_a_runtime_given_up() {
    let backend = nccl_ext_cpu::backend();
    let only = layout("{1}@0 [R] 4 uint8");
    let other = layout("{1}@1 [R] 4 uint8");
    let id = unique_id(&CpuConfig::new());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (id, only, other) = (&id, &only, &other);
            scope.spawn(move || {
                let comm = Comm::init_rank(backend, 2, id, rank).unwrap();
                let (own, mut room) = ([1_u8; 4], [0_u8; 4]);
                let mut dropped = Some(Runtime::new(backend, &Config::new()).unwrap());
                let runtime = dropped.as_ref().unwrap();
                reshard(runtime, &comm, (&own, only), (&mut room, other)).unwrap();
                let outer = Runtime::new(backend, &Config::new()).unwrap();
                let within = |_: &mut Group<'_>| {
                    drop(dropped.take());
                    Ok(())
                };
                outer.group(within).unwrap();
                // The same address, as a later communicator's may be.
                let own = [2_u8; 4];
                reshard(&outer, &comm, (&own, only), (&mut room, other)).unwrap();
                assert_eq!(room, [[0; 4], [2; 4]][rank]);
                outer.finalize().unwrap();
            });
        }
    });
}
