//! The byte plans of M2N 3.2.

use libtest_mimic::Trial;
use nccl_ext_test::layout::numbers;
use nccl_ext_test::m2n_vectors::{DataVector, data_vectors};
use nccl_ext_test::rows::trial;
use nccl_m2n::plan::{Conditions, Loop, Plan};

use crate::common::layout;

/// Number of the vector, source and destination shards, offsets, counts, strides of both sides, run, total.
type Piece = (
    &'static str,
    usize,
    usize,
    usize,
    usize,
    &'static str,
    &'static str,
    &'static str,
    usize,
    usize,
);

const PIECES: &[Piece] = &[
    ("D05", 0, 0, 0, 0, "", "", "", 2, 2),
    ("D05", 0, 1, 2, 0, "", "", "", 1, 1),
    ("D05", 1, 1, 0, 1, "", "", "", 1, 1),
    ("D05", 1, 2, 1, 0, "", "", "", 2, 2),
    ("D11", 0, 0, 0, 0, "2", "4", "2", 2, 4),
    ("D11", 0, 1, 2, 0, "2", "4", "2", 2, 4),
    ("D11", 1, 0, 0, 4, "2", "4", "2", 2, 4),
    ("D11", 1, 1, 2, 4, "2", "4", "2", 2, 4),
    ("D14", 0, 0, 0, 0, "2", "8", "8", 8, 16),
    ("D14", 1, 1, 0, 0, "2", "8", "8", 8, 16),
    ("D15", 0, 0, 0, 0, "2", "4", "8", 4, 8),
    ("D15", 1, 0, 0, 4, "2", "4", "8", 4, 8),
    ("D27", 0, 0, 0, 0, "1,2", "8,4", "4,2", 2, 4),
    ("D27", 1, 1, 2, 4, "1,2", "8,4", "4,2", 2, 4),
    ("D28", 0, 1, 4, 0, "1", "8", "4", 4, 4),
    ("D28", 1, 0, 0, 4, "1", "8", "4", 4, 4),
    ("D31", 0, 0, 0, 0, "2", "4", "4", 4, 8),
    ("D31", 1, 1, 0, 0, "2", "4", "4", 4, 8),
];

fn vector(number: &str) -> DataVector {
    data_vectors().into_iter().find(|vector| vector.id == number).unwrap()
}

pub(crate) fn trials() -> Vec<Trial> {
    let row = |piece: &'static Piece| {
        let vector = vector(piece.0);
        let name = format!("{}::piece_of_shard_{}_in_shard_{}", vector.name, piece.1, piece.2);
        trial(name, move || has_the_listed_offsets_and_strides(piece))
    };
    PIECES.iter().map(row).collect()
}

fn has_the_listed_offsets_and_strides(piece: &Piece) {
    let (number, s, t, from, to, counts, source_strides, destination_strides, run, bytes) = *piece;
    let vector = vector(number);
    let (source, destination) =
        (layout(&vector.source_layout()), layout(&vector.destination_layout()));
    let plan = Plan::new(&source, &destination, &Conditions::one_host(vector.ranks)).unwrap();
    let mut transfers = plan.transfers();
    let found = transfers.find(|x| (x.source_shard, x.destination_shard) == (s, t)).unwrap();
    assert_eq!((found.source_offset, found.destination_offset), (from, to));
    let loops = found.loops();
    let column = |pick: fn(&Loop) -> usize| -> Vec<usize> { loops.iter().map(pick).collect() };
    assert_eq!(column(|level| level.count), numbers(counts, ','));
    assert_eq!(column(|level| level.source_stride), numbers(source_strides, ','));
    assert_eq!(column(|level| level.destination_stride), numbers(destination_strides, ','));
    assert_eq!((found.run, found.bytes()), (run, bytes));
}
