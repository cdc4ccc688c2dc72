//! D01 to D38: what arrives, and from whom.

use nccl_m2n::plan::{Conditions, LoadBalance, Plan};
use nccl_m2n::{Config, Fabric, Runtime, Settings};

use crate::cpu::{on_ranks, reshard};
use crate::notation::{by_rank, bytes, elements, layout, numbers, tile};
use crate::table::{VECTORS, Vector};

const STALE: u8 = 0xEE;

#[test]
fn all_vectors_are_here() {
    let ids: Vec<_> = VECTORS.iter().map(|vector| vector.id.to_owned()).collect();
    assert_eq!(ids, (1..=38).map(|i| format!("D{i:02}")).collect::<Vec<_>>());
}

/// The table, the slices of a global tensor, and the crate's shapes agree.
#[test]
fn tiles_are_slices_of_the_global_tensor() {
    for Vector { id, ranks, global, source, destination, tiles, .. } in VECTORS {
        let (source, destination) = (layout(source), layout(destination));
        assert_eq!(&source.global_shape()[..], numbers(global, 'x'), "{id}");
        assert_eq!(destination.global_shape(), source.global_shape(), "{id}");
        let mut listed: Vec<usize> = vec![];
        for (rank, expected) in by_rank(tiles, ":") {
            let expected = if expected == "(empty)" { "" } else { expected };
            assert_eq!(elements(&destination, rank), numbers(expected, ' '), "{id} r{rank}");
            listed.push(rank);
        }
        listed.sort_unstable();
        assert_eq!(listed, destination.mesh().ranks().collect::<Vec<_>>(), "{id}");
        assert!(destination.mesh().ranks().end <= *ranks, "{id}");
    }
}

fn conditions(ranks: usize, load_balance: Option<LoadBalance>) -> Conditions {
    let settings = Settings::default();
    let conditions = Conditions::new(ranks, Fabric::domains_of(ranks));
    let mut settings = settings;
    settings.load_balance = load_balance;
    conditions.settings(settings)
}

#[test]
fn plans_are_proved_and_read_from_the_listed_ranks() {
    for Vector { id, ranks, source, destination, sources, .. } in VECTORS {
        let (source, destination) = (layout(source), layout(destination));
        for balance in [None, Some(LoadBalance::Uniform)] {
            let conditions = conditions(*ranks, balance);
            let plan = Plan::new(&source, &destination, &conditions).unwrap();
            plan.accepted().unwrap_or_else(|error| panic!("{id}: {error}"));
            let proof = plan.prove().unwrap_or_else(|error| panic!("{id}: {error}"));
            assert_eq!(proof.transfers, plan.transfer_count(), "{id}");
            for (rank, listed) in by_rank(sources, "<-") {
                let (usual, uniform) = listed.split_once(" (U: ").unwrap_or((listed, listed));
                let listed = if balance.is_some() { uniform.trim_end_matches(')') } else { usual };
                let listed = if listed == "none" { "" } else { listed };
                let found: Vec<_> = plan.receives(rank).map(|t| t.source).collect();
                assert_eq!(found, numbers(listed, ','), "{id} r{rank} {balance:?}");
            }
            // Both ends of a transfer know of it alike.
            let mut sent: Vec<_> = (0..*ranks).flat_map(|rank| plan.sends(rank)).collect();
            sent.sort_by_key(|t| (t.destination, t.source_shard));
            assert_eq!(sent, plan.transfers().collect::<Vec<_>>(), "{id}");
            let hops = plan.hops();
            assert_eq!(hops.len(), sent.len(), "{id}");
        }
    }
}

/// Copying the bytes that the plan names fills the destination tiles.
#[test]
fn executed_plans_deliver_the_tiles() {
    for Vector { id, ranks, source, destination, .. } in VECTORS {
        let (source, destination) = (layout(source), layout(destination));
        let plan = Plan::new(&source, &destination, &conditions(*ranks, None)).unwrap();
        for rank in destination.mesh().ranks() {
            let mut received = vec![STALE; destination.local_bytes()];
            for transfer in plan.receives(rank) {
                transfer.copy(&tile(&source, transfer.source), &mut received).unwrap();
            }
            assert_eq!(received, tile(&destination, rank), "{id} r{rank}");
        }
    }
}

#[test]
fn the_cpu_backend_delivers_the_tiles() {
    for Vector { id, ranks, source, destination, tiles, .. } in VECTORS {
        let (source, destination) = (layout(source), layout(destination));
        let received = on_ranks(*ranks, |comm| {
            let runtime = Runtime::new(comm.backend(), &Config::new())?;
            let own = tile(&source, comm.rank());
            let room =
                if destination.contains(comm.rank()) { destination.local_bytes() } else { 0 };
            let mut received = vec![STALE; room];
            reshard(&runtime, &comm, (&own, &source), (&mut received, &destination))?;
            assert_eq!(own, tile(&source, comm.rank()), "the source changed");
            runtime.finalize()?;
            comm.destroy()?;
            Ok(received)
        });
        for (rank, expected) in by_rank(tiles, ":") {
            let expected = if expected == "(empty)" { "" } else { expected };
            let expected = bytes(&destination, &numbers(expected, ' '));
            assert_eq!(received[rank], expected, "{id} r{rank}");
        }
    }
}
