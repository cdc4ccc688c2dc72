//! What is refused on the CPU backend, on every rank alike, beside the tables of `vectors`.
//!
//! By type, nobody can pass a NULL communicator, descriptor, mesh or array (M2N vectors E01, E02,
//! E03, E08, E09, E13, E14), another size or version of a structure (M2N vectors E04, E05, E06, E10,
//! E11, E15), a handle that is no runtime's (M2N vector E27), or a dtype that is none. A capturing
//! stream (M2N vector E39) is tested with stubs; an asynchronous error (M2N vector E28) is the
//! library's to report.

use nccl_ext_test::worlds::*;
use nccl_m2n::Placement::Shard;
use nccl_m2n::{Agreement, Config, DataType, Error, Layout, Mesh, Runtime, Scope};

use crate::common::{layout, reshard};

/// Without comparing: the peer is told by the backend, not by a time-out, and this rank is
/// out of step.
#[test]
fn memory_that_one_rank_lacks_is_told_by_the_backend() {
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

/// M2N vectors D26 and E35: ranks outside of a mesh pass nothing for it.
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

/// M2N vector E40, case M3. The tile itself is never needed: every rank refuses by its size.
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

/// Cases M2 and M11: the same error wherever it is computed.
#[test]
fn uneven_dimensions_are_refused_with_slices() {
    let mesh = |ranks, start| Mesh::new(&[ranks], start).unwrap();
    let uneven = Layout::from_global(mesh(4, 0), &[Shard(0)], &[5, 10], DataType::Float32);
    assert!(matches!(uneven, Err(Error::Uneven { dim: 0, size: 5, parts: 4 })), "{uneven:?}");
    let four = Layout::from_global(mesh(4, 0), &[Shard(0)], &[4096], DataType::Float16).unwrap();
    let error = four.on(mesh(3, 4), &[Shard(0)]).unwrap_err();
    assert_eq!(error.scope(), Scope::Uniform, "{error}");
    let message = error.to_string();
    assert!(message.contains("move 0..4095 (1365 a shard) and 4095..4096 (replicated)"));
    assert!(message.ends_with("or pad it to 4098"), "{message}");
}
