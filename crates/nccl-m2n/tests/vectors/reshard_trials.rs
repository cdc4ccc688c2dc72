//! What arrives, and from whom, by the table of reshards.

use libtest_mimic::Trial;
use nccl_ext_test::m2n_vectors::{DataVector, data_vectors};
use nccl_ext_test::rows::trial;
use nccl_ext_test::worlds::on_ranks;
use nccl_m2n::plan::{Conditions, LoadBalance, Plan};
use nccl_m2n::{Config, Fabric, Layout, Runtime, Settings};

use crate::common::{bytes, elements, layout, reshard, tile};

/// What a destination holds before.
const STALE: u8 = 0xEE;

type Check = (&'static str, fn(&DataVector));

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [Check; 4] = [
        ("tiles_are_slices_of_the_global_tensor", tiles_are_slices_of_the_global_tensor),
        (
            "the_plan_is_proved_and_reads_from_the_listed_ranks",
            the_plan_reads_from_the_listed_ranks,
        ),
        ("the_executed_plan_delivers_the_tiles", the_executed_plan_delivers_the_tiles),
        ("the_cpu_backend_delivers_the_tiles", the_cpu_backend_delivers_the_tiles),
    ];
    let rows = |(check, run): Check| {
        let named =
            move |row: DataVector| trial(format!("{}::{check}", row.name), move || run(&row));
        data_vectors().into_iter().map(named)
    };
    checks.into_iter().flat_map(rows).collect()
}

fn layouts(row: &DataVector) -> (Layout, Layout) {
    (layout(&row.source_layout()), layout(&row.destination_layout()))
}

/// The table, the slices of a global tensor, and the crate's shapes agree.
fn tiles_are_slices_of_the_global_tensor(row: &DataVector) {
    let (source, destination) = layouts(row);
    assert_eq!(&source.global_shape()[..], row.global);
    assert_eq!(destination.global_shape(), source.global_shape());
    let mut listed: Vec<usize> = vec![];
    for (rank, expected) in &row.tiles {
        assert_eq!(elements(&destination, *rank), *expected, "r{rank}");
        listed.push(*rank);
    }
    assert_eq!(listed, destination.mesh().ranks().collect::<Vec<_>>());
    assert!(destination.mesh().ranks().end <= row.ranks);
}

fn conditions(ranks: usize, load_balance: Option<LoadBalance>) -> Conditions {
    let mut settings = Settings::default();
    settings.load_balance = load_balance;
    Conditions::new(ranks, Fabric::domains_of(ranks)).settings(settings)
}

fn the_plan_reads_from_the_listed_ranks(row: &DataVector) {
    let (source, destination) = layouts(row);
    for balance in [None, Some(LoadBalance::Uniform)] {
        let plan = Plan::new(&source, &destination, &conditions(row.ranks, balance)).unwrap();
        plan.accepted().unwrap();
        let proof = plan.prove().unwrap();
        assert_eq!(proof.transfers, plan.transfer_count());
        let listed = if balance.is_some() { &row.uniform_sources } else { &row.sources };
        for (rank, listed) in listed {
            let found: Vec<_> = plan.receives(*rank).map(|t| t.source).collect();
            assert_eq!(found, *listed, "r{rank} {balance:?}");
        }
        // Both ends of a transfer know of it alike.
        let mut sent: Vec<_> = (0..row.ranks).flat_map(|rank| plan.sends(rank)).collect();
        sent.sort_by_key(|t| (t.destination, t.source_shard));
        assert_eq!(sent, plan.transfers().collect::<Vec<_>>());
        assert_eq!(plan.hops().len(), sent.len());
    }
}

/// Copying the bytes that the plan names fills the destination tiles.
fn the_executed_plan_delivers_the_tiles(row: &DataVector) {
    let (source, destination) = layouts(row);
    let plan = Plan::new(&source, &destination, &conditions(row.ranks, None)).unwrap();
    for rank in destination.mesh().ranks() {
        let mut received = vec![STALE; destination.local_bytes()];
        for transfer in plan.receives(rank) {
            transfer.copy(&tile(&source, transfer.source), &mut received).unwrap();
        }
        assert_eq!(received, tile(&destination, rank), "r{rank}");
    }
}

fn the_cpu_backend_delivers_the_tiles(row: &DataVector) {
    let (source, destination) = layouts(row);
    let received = on_ranks(row.ranks, |comm| {
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        let own = tile(&source, comm.rank());
        let room = if destination.contains(comm.rank()) { destination.local_bytes() } else { 0 };
        let mut received = vec![STALE; room];
        reshard(&runtime, &comm, (&own, &source), (&mut received, &destination))?;
        assert_eq!(own, tile(&source, comm.rank()), "the source changed");
        runtime.finalize()?;
        comm.destroy()?;
        Ok(received)
    });
    for (rank, expected) in &row.tiles {
        assert_eq!(received[*rank], bytes(&destination, expected), "r{rank}");
    }
}
