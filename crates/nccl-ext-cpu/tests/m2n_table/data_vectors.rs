//! M2N 8.1: which bytes arrive where, and from which rank.

use libtest_mimic::Trial;
use nccl_ext_test::cpu::every_rank;
use nccl_ext_test::cpu::m2n::{RankTiles, ReshardCase, assert_ok};
use nccl_ext_test::m2n_vectors::{DataVector, data_vectors};
use nccl_ext_test::rows::trial;

use crate::shared;

pub(crate) fn trials() -> Vec<Trial> {
    let named = |vector: DataVector| {
        let name = format!("data::{}::{}", vector.id, vector.name);
        trial(name, move || check(&vector))
    };
    data_vectors().into_iter().map(named).collect()
}

fn check(vector: &DataVector) {
    let _shared = shared();
    let &DataVector { ranks, element, .. } = vector;
    let case = ReshardCase::new(ranks, element, &vector.source, &vector.destination);
    assert_eq!(case.src.global(), vector.global);
    let arrived = every_rank(ranks, |comm| {
        case.run(comm);
        // Elements that say their own number, then those that say whose they were.
        let rank = comm.rank();
        let first_byte = |index: usize, byte: usize| if byte == 0 { index as u8 } else { 0 };
        let mut numbers = case.tiles(rank, first_byte);
        assert_ok(case.call(comm, &mut numbers));
        let mut owners = case.tiles(rank, |_, _| rank as u8);
        assert_ok(case.call(comm, &mut owners));
        [numbers, owners].map(|tiles| first_bytes(tiles, element))
    });
    let mut tiles = Vec::new();
    let mut sources = Vec::new();
    for (rank, [numbers, owners]) in arrived.into_iter().enumerate() {
        tiles.extend(numbers.map(|numbers| (rank, numbers)));
        sources.extend(owners.map(|mut owners| {
            owners.sort();
            owners.dedup();
            (rank, owners)
        }));
    }
    assert_eq!(tiles, vector.tiles);
    assert_eq!(sources, vector.sources);
}

/// The first byte of each element of the destination.
fn first_bytes(tiles: RankTiles, element: usize) -> Option<Vec<usize>> {
    let bytes = |data: &[u8]| data.iter().step_by(element).map(|&byte| byte as usize).collect();
    tiles.dst.map(|tile| bytes(tile.data()))
}
