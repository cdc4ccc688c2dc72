//! The byte plans of M2N 3.2.

use nccl_m2n::plan::{Conditions, Plan};

use crate::notation::{layout, numbers};
use crate::table::VECTORS;

/// Vector, source and destination shards, offsets, counts, strides of both sides, run, total.
type Row<'a> = (&'a str, usize, usize, usize, usize, &'a str, &'a str, &'a str, usize, usize);

const PIECES: &[Row<'_>] = &[
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

#[test]
fn pieces_have_the_listed_offsets_and_strides() {
    for (id, s, t, from, to, counts, source_strides, destination_strides, run, bytes) in PIECES {
        let vector = VECTORS.iter().find(|vector| vector.id == *id).unwrap();
        let (source, destination) = (layout(vector.source), layout(vector.destination));
        let conditions = Conditions::one_host(vector.ranks);
        let plan = Plan::new(&source, &destination, &conditions).unwrap();
        let mut transfers = plan.transfers();
        let found = transfers.find(|x| (x.source_shard, x.destination_shard) == (*s, *t)).unwrap();
        let what = format!("{id} s{s}>t{t}");
        assert_eq!((found.source_offset, found.destination_offset), (*from, *to), "{what}");
        let loops = found.loops();
        let listed = |text| numbers(text, ',');
        let column = |pick: fn(&nccl_m2n::plan::Loop) -> usize| loops.iter().map(pick).collect();
        let found_counts: Vec<_> = column(|level| level.count);
        assert_eq!(found_counts, listed(counts), "{what}");
        let found_strides: Vec<_> = column(|level| level.source_stride);
        assert_eq!(found_strides, listed(source_strides), "{what}");
        let found_strides: Vec<_> = column(|level| level.destination_stride);
        assert_eq!(found_strides, listed(destination_strides), "{what}");
        assert_eq!((found.run, found.bytes()), (*run, *bytes), "{what}");
    }
}
