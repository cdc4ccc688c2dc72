//! E01 to E51: what is refused, on every rank alike.
//!
//! By type, nobody can pass a NULL communicator, descriptor, mesh or array (E01, E02, E03, E08, E09,
//! E13, E14), another size or version of a structure (E04, E05, E06, E10, E11, E15), a handle that
//! is no runtime's (E27), or a dtype that is none. E39 (capture) needs a stream and is tested with
//! stubs; E28 (asynchronous error) is the library's to report.

use nccl_m2n::Placement::{Replicate, Shard};
use nccl_m2n::plan::{Conditions, Plan};
use nccl_m2n::{
    Agreement, Buckets, Config, CopyAlgorithm, DataType, Error, Fabric, Layout, Mesh, Placement,
    Result, Runtime, Scope, Settings,
};

use crate::cpu::{errors, on_ranks, outcomes, reshard};
use crate::notation::layout;

fn made(dims: &[usize], placements: &[Placement], shape: &[usize], t: DataType) -> Result<Layout> {
    Layout::new(Mesh::new(dims, 0)?, placements, shape, t)
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => "accepted".into(),
        Err(error) => {
            assert_eq!(error.scope(), Scope::Uniform, "{error}");
            error.to_string()
        }
    }
}

/// Refused before a communicator is in sight.
#[test]
fn layouts_that_cannot_be() {
    let (u8, f32) = (DataType::Uint8, DataType::Float32);
    let cases = [
        ("E07", made(&[1], &[Replicate], &[], u8), "found 0"),
        ("E07", made(&[1], &[Replicate], &[1; 4], u8), "found 4"),
        ("E12", made(&[1; 3], &[Replicate], &[4], u8), "one or two dimensions"),
        ("E16", made(&[0], &[Replicate], &[4], u8), "[0]"),
        ("E19", made(&[65536, 65536], &[Replicate], &[4], u8), "[65536, 65536]"),
        ("E23", made(&[1], &[Replicate], &[4], DataType::Float4x2), "fp4x2"),
        ("E24", made(&[1], &[Shard(-2)], &[4], u8), "[Shard(-2)]"),
        ("E25", made(&[1], &[Shard(1)], &[4], u8), "[Shard(1)]"),
        ("E26", made(&[1, 1], &[Shard(0), Shard(0)], &[4], u8), "shards at most"),
        ("E26", made(&[1, 1], &[Shard(0), Shard(1)], &[4, 4], u8), "shards at most"),
        ("E37", made(&[2], &[Shard(0)], &[1 << 63], u8), "global extent"),
        ("E38", made(&[2], &[Shard(0)], &[1 << 62], f32), "bytes of a tile"),
    ];
    for (id, made, expected) in cases {
        let message = message(made);
        assert!(message.contains(expected), "{id}: {message}");
    }
    // E17 and E18, negative numbers, cannot be written; E20 is the end of the interval.
    assert!(message(Mesh::new(&[2], 2_147_483_646)).contains("2147483646"));
}

/// Two ranks; every one gets the same error, at once, and the runtime goes on.
#[test]
fn pairs_of_layouts_that_cannot_be() {
    let one = |start: usize, shape: &str| layout(&format!("{{1}}@{start} [R] {shape} uint8"));
    let cases = [
        ("E21", one(0, "4"), one(1, "4x4"), "equally many dimensions; expected 1, found 2"),
        ("E22", one(0, "4"), layout("{1}@1 [R] 4 int8"), "expected uint8, found int8"),
        ("E29", layout("{3}@0 [R] 4 uint8"), one(1, "4"), "expected ranks below 2, found 0..3"),
        ("E30", one(0, "4"), layout("{2}@1 [R] 4 uint8"), "expected ranks below 2, found 1..3"),
        ("E31", one(0, "4"), one(0, "4"), "ranks outside of 0..1, found 0..1"),
        ("E32", layout("{2}@0 [R] 4 uint8"), one(1, "4"), "ranks outside of 0..2, found 1..2"),
        // Where the library delivers stale bytes, or the front of the tensor (case M1).
        ("E42", one(0, "4"), one(1, "6"), "expected [4], as the source, found [6]"),
        ("E43", one(0, "6"), one(1, "4"), "expected [6], as the source, found [4]"),
    ];
    for (id, source, destination, expected) in cases {
        let errors = errors(2, |comm| {
            let runtime = Runtime::new(comm.backend(), &Config::new())?;
            let (own, mut room) = (vec![7; 64], vec![0xEE; 64]);
            let refused = reshard(&runtime, &comm, (&own, &source), (&mut room, &destination));
            assert_eq!(room, [0xEE; 64], "{id}");
            // All ranks know: a right call works.
            let (from, to) = (one(0, "4"), one(1, "4"));
            reshard(&runtime, &comm, (&own, &from), (&mut room, &to))?;
            runtime.finalize()?;
            comm.destroy()?;
            refused
        });
        assert_eq!(errors[0].to_string(), errors[1].to_string(), "{id}");
        assert!(errors[0].to_string().contains(expected), "{id}: {}", errors[0]);
        assert_eq!(errors[0].scope(), Scope::Uniform, "{id}");
    }
}

/// E33 to E36, with ranks that compare: one fails, the other hears of it, both go on.
#[test]
fn memory_that_one_rank_lacks() {
    let (source, destination) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let empty = layout("{1}@0 [R] 0 uint8");
    let no_room = layout("{1}@1 [R] 0 uint8");
    let cases = [
        ("E33", &source, &destination, 0, "source"),
        ("E34", &source, &destination, 1, "destination"),
        ("E36", &empty, &no_room, 0, "source"),
    ];
    for (id, source, destination, failing, side) in cases {
        let errors = errors(2, |comm| {
            let config = Config::new().agreement(Agreement::EveryCall);
            let runtime = Runtime::new(comm.backend(), &config)?;
            let (own, mut room) = ([1_u8, 2, 3, 4], [0_u8; 4]);
            let lacks = comm.rank() == failing;
            let mut to = match lacks && side == "destination" {
                true => nccl_m2n::DistTensorMut::inactive(destination),
                false => nccl_m2n::DistTensorMut::new(&mut room, destination),
            };
            let from = match lacks && side == "source" {
                true => nccl_m2n::DistTensor::inactive(source),
                false => nccl_m2n::DistTensor::new(&own, source),
            };
            let refused = runtime.reshard(&comm, &from, &mut to, crate::cpu::STREAM);
            let (from, to) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
            reshard(&runtime, &comm, (&own, &from), (&mut room, &to))?;
            assert_eq!(room, if comm.rank() == 1 { own } else { [0; 4] });
            runtime.finalize()?;
            comm.destroy()?;
            refused
        });
        let words = format!("a rank of the {side} mesh passes its tile");
        assert!(errors[failing].to_string().contains(&words), "{id}: {}", errors[failing]);
        let Error::PeerFailed { rank, error } = &errors[1 - failing] else {
            panic!("{id}: {:?}", errors[1 - failing])
        };
        assert_eq!(*rank, failing, "{id}");
        assert!(error.to_string().contains(&words), "{id}: {error}");
    }
}

/// The same without comparing: the peer is told by the backend, not by a time-out, and this rank is
/// out of step.
#[test]
fn memory_that_one_rank_lacks_unannounced() {
    let (source, destination) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let start = std::time::Instant::now();
    let errors = errors(2, |comm| {
        let config = Config::new().agreement(Agreement::Off);
        let runtime = Runtime::new(comm.backend(), &config)?;
        let (own, mut room) = (vec![1; 4], vec![0; 4]);
        let own = if comm.rank() == 0 { &own[..0] } else { &own[..] };
        let refused = reshard(&runtime, &comm, (own, &source), (&mut room, &destination));
        let again = reshard(&runtime, &comm, (&[1; 4], &source), (&mut room, &destination));
        let again = again.unwrap_err();
        assert!(matches!(again, Error::Diverged { .. } | Error::Poisoned { .. }), "{again:?}");
        refused
    });
    assert!(errors[0].to_string().contains("source mesh passes its tile"), "{}", errors[0]);
    assert!(matches!(errors[1], Error::PeerFailed { rank: 0, .. }), "{:?}", errors[1]);
    assert!(start.elapsed().as_secs() < 10);
}

/// E35, D26: ranks outside of a mesh pass nothing for it.
#[test]
fn inactive_sides_need_no_memory() {
    let (source, destination) = (layout("{1}@1 [R] 4 uint8"), layout("{1}@2 [R] 4 uint8"));
    let received = on_ranks(4, |comm| {
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        let own = if comm.rank() == 1 { vec![1, 2, 3, 4] } else { vec![] };
        let mut room = if comm.rank() == 2 { vec![0; 4] } else { vec![] };
        reshard(&runtime, &comm, (&own, &source), (&mut room, &destination))?;
        Ok(room)
    });
    assert_eq!(received, [vec![], vec![], vec![1, 2, 3, 4], vec![]]);
}

/// E40, case M3. The tile itself is never needed: every rank refuses by its size.
#[test]
fn tiles_above_the_largest_bucket() {
    let source = layout("{1}@0 [R] 2147483649 uint8");
    let destination = layout("{1}@1 [R] 2147483649 uint8");
    let errors = errors(2, |comm| {
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        reshard(&runtime, &comm, (&[], &source), (&mut [], &destination))
    });
    for error in errors {
        let message = error.to_string();
        assert!(message.contains("at most 2147483648 bytes (the implicit default, 2 GiB)"));
        assert!(message.contains("NCCL_RESHARD_PACK_BUFFSIZES"), "{message}");
        assert!(message.contains("found 2147483649 bytes"), "{message}");
    }
    // E41.
    let mut settings = Settings::default();
    settings.buckets = Buckets::parse("4096:1").unwrap();
    let conditions = Conditions::one_host(2).settings(settings);
    let tile = |bytes: usize| {
        let mesh = |start| Mesh::new(&[1], start).unwrap();
        let source = Layout::new(mesh(0), &[Replicate], &[bytes], DataType::Uint8).unwrap();
        let destination = source.on(mesh(1), &[Replicate]).unwrap();
        message(Plan::new(&source, &destination, &conditions).and_then(|plan| plan.accepted()))
    };
    assert_eq!(tile(4096), "accepted");
    assert!(tile(4097).contains("expected at most 4096 bytes (the largest), found 4097"));
}

/// E44 to E51: what the transports can carry.
#[test]
fn limits_of_the_transports() {
    let by = |algorithm: CopyAlgorithm, conditions: Conditions| {
        let mut settings = conditions.settings;
        settings.copy_algorithm = algorithm;
        conditions.settings(settings)
    };
    let accept = |conditions: &Conditions, source: &str, destination: &str| {
        let plan = Plan::new(&layout(source), &layout(destination), conditions);
        message(plan.and_then(|plan| plan.accepted()))
    };
    let (pipe, direct) = (CopyAlgorithm::Pipe, CopyAlgorithm::Direct);
    let near = |ranks| Conditions::new(ranks, Fabric::domains_of(ranks));
    for algorithm in [direct, pipe] {
        let two = by(algorithm, near(2));
        let message = accept(&two, "{1}@0 [R] 4 uint8", "{1}@1 [R] 3 uint8");
        assert!(message.contains("expected [4], as the source, found [3]"), "E44: {message}");
        let message = accept(&two, "{1}@0 [R] 0 uint8", "{1}@1 [R] 0 uint8");
        assert!(message.contains("extents of at least 1"), "E45: {message}");
    }
    let message = accept(&by(pipe, near(1)), "{1}@0 [R] 4 uint8", "{1}@0 [R] 4 uint8");
    assert!(message.contains("PIPE copies to other ranks only"), "E46: {message}");

    // The kernel path: the source lies above the destination.
    let fan_in = |sources: usize| {
        let total = sources * 2;
        let source = format!("{{{sources}}}@1 [S0] 2 uint8");
        accept(&near(sources + 1), &source, &format!("{{1}}@0 [R] {total} uint8"))
    };
    assert_eq!(fan_in(16), "accepted", "E47");
    let message = fan_in(17);
    assert!(message.contains("expected at most 16 sources for kernel PACK, found 17"), "E48");
    // The single-domain path, also without a network.
    let fan_in = |sources: usize| {
        let total = sources * 2;
        let source = format!("{{{sources}}}@0 [S0] 2 uint8");
        let destination = format!("{{1}}@{sources} [R] {total} uint8");
        accept(&Conditions::one_host(sources + 1), &source, &destination)
    };
    assert_eq!((fan_in(17), fan_in(32)), ("accepted".into(), "accepted".into()), "E49");
    assert!(fan_in(33).contains("expected at most 32 sources, found 33"), "E49: {}", fan_in(33));

    let fan_out = |targets: usize| {
        let source = format!("{{1}}@0 [R] {targets} uint8");
        let destination = format!("{{{targets}}}@1 [S0] 1 uint8");
        accept(&near(targets + 1), &source, &destination)
    };
    assert_eq!(fan_out(64), "accepted", "E50");
    assert!(fan_out(65).contains("at most 64 targets for kernel PACK, found 65"), "E50");
    let replicas = |count: usize| {
        let destination = format!("{{{count}}}@1 [R] 4 uint8");
        accept(&near(count + 2), "{1}@0 [R] 4 uint8", &destination)
    };
    assert_eq!(replicas(129), "accepted", "E51");
    assert!(replicas(130).contains("expected at most 129, found 130"), "E51: {}", replicas(130));
}

/// Case M9 on the backend: the same limits, and what they let pass arrives.
#[test]
fn fan_in_on_the_cpu_backend() {
    let run = |sources: usize, forward: bool| {
        let (first, last) = if forward { (0, sources) } else { (1, 0) };
        let source = layout(&format!("{{{sources}}}@{first} [S0] 1 uint8"));
        let destination = layout(&format!("{{1}}@{last} [R] {sources} uint8"));
        outcomes(sources + 1, |comm| {
            let runtime = Runtime::new(comm.backend(), &Config::new())?;
            let own = vec![u8::try_from(comm.rank()).unwrap(); 1];
            let mut room = vec![0; sources];
            let room = if comm.rank() == last { &mut room[..] } else { &mut [] };
            reshard(&runtime, &comm, (&own, &source), (room, &destination))?;
            runtime.finalize()?;
            Ok(room.to_vec())
        })
    };
    let arrived = run(17, true);
    assert_eq!(*arrived[17].as_ref().unwrap(), (0..17).collect::<Vec<u8>>());
    for (sources, forward, expected) in [(17, false, "at most 16"), (33, true, "at most 32")] {
        for result in run(sources, forward) {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(message.contains(&format!("found {sources}")), "{message}");
        }
    }
}

/// Case M4: refused before anything is sent, with what to do.
#[test]
fn reversed_meshes_need_a_network() {
    let (source, destination) = (layout("{2}@2 [S0] 4 uint8"), layout("{2}@0 [S0] 4 uint8"));
    let accept = |conditions: Conditions| {
        message(Plan::new(&source, &destination, &conditions).and_then(|plan| plan.accepted()))
    };
    let message = accept(Conditions::one_host(4));
    assert!(message.contains("without a network that kernels can use (GIN)"), "{message}");
    assert!(message.contains("give the source mesh the lower ranks"), "{message}");
    assert_eq!(accept(Conditions::domains(4, 4)), "accepted");
}

/// Cases M2 and M11: the same error wherever it is computed.
#[test]
fn uneven_dimensions_are_refused_with_slices() {
    let mesh = |ranks, start| Mesh::new(&[ranks], start).unwrap();
    let uneven = Layout::from_global(mesh(4, 0), &[Shard(0)], &[5, 10], DataType::Float32);
    assert!(matches!(uneven, Err(Error::Uneven { dim: 0, size: 5, parts: 4 })), "{uneven:?}");
    let four = Layout::from_global(mesh(4, 0), &[Shard(0)], &[4096], DataType::Float16).unwrap();
    let message = message(four.on(mesh(3, 4), &[Shard(0)]));
    assert!(message.contains("move 0..4095 (1365 a shard) and 4095..4096 (replicated)"));
    assert!(message.ends_with("or pad it to 4098"), "{message}");
}
