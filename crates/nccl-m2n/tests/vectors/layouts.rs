//! Layouts that cannot be: refused before a communicator is in sight (M2N 8.2).
//!
//! Negative numbers (M2N vectors E17 and E18) cannot be written.

use libtest_mimic::Trial;
use nccl_ext_test::rows::trial;
use nccl_m2n::DataType::{Float4x2, Float32, Uint8};
use nccl_m2n::Placement::{Replicate, Shard};
use nccl_m2n::{DataType, Layout, Mesh, Placement, Result, Scope};

/// A layout of dimensions of a mesh from rank 0, placements, the shape of a tile and a type; and
/// what the refusal says.
struct Wrong {
    name: &'static str,
    make: fn() -> Result<()>,
    says: &'static str,
}

const fn wrong(name: &'static str, make: fn() -> Result<()>, says: &'static str) -> Wrong {
    Wrong { name, make, says }
}

fn made(dims: &[usize], placements: &[Placement], shape: &[usize], t: DataType) -> Result<()> {
    Layout::new(Mesh::new(dims, 0)?, placements, shape, t).map(drop)
}

const ROWS: &[Wrong] = &[
    // M2N vector E07.
    wrong("no_dimension", || made(&[1], &[Replicate], &[], Uint8), "found 0"),
    // M2N vector E07.
    wrong("four_dimensions", || made(&[1], &[Replicate], &[1; 4], Uint8), "found 4"),
    // M2N vector E12.
    wrong(
        "a_mesh_of_three_dimensions",
        || made(&[1; 3], &[Replicate], &[4], Uint8),
        "one or two dimensions",
    ),
    // M2N vector E16.
    wrong("a_mesh_of_no_ranks", || made(&[0], &[Replicate], &[4], Uint8), "[0]"),
    // M2N vector E19.
    wrong(
        "more_ranks_than_an_int_counts",
        || made(&[65536, 65536], &[Replicate], &[4], Uint8),
        "[65536, 65536]",
    ),
    // M2N vector E20: the end of the interval.
    wrong("ranks_past_the_largest_int", || Mesh::new(&[2], 2_147_483_646).map(drop), "2147483646"),
    // M2N vector E23.
    wrong("a_packed_type", || made(&[1], &[Replicate], &[4], Float4x2), "fp4x2"),
    // M2N vector E24.
    wrong("a_shard_below_minus_one", || made(&[1], &[Shard(-2)], &[4], Uint8), "[Shard(-2)]"),
    // M2N vector E25.
    wrong("a_shard_of_no_dimension", || made(&[1], &[Shard(1)], &[4], Uint8), "[Shard(1)]"),
    // M2N vector E26.
    wrong(
        "one_dimension_sharded_twice",
        || made(&[1, 1], &[Shard(0), Shard(0)], &[4], Uint8),
        "shards at most",
    ),
    // M2N vector E26.
    wrong(
        "two_dimensions_sharded",
        || made(&[1, 1], &[Shard(0), Shard(1)], &[4, 4], Uint8),
        "shards at most",
    ),
    // M2N vector E37.
    wrong(
        "a_global_extent_past_size_t",
        || made(&[2], &[Shard(0)], &[1 << 63], Uint8),
        "global extent",
    ),
    // M2N vector E38.
    wrong(
        "bytes_of_a_tile_past_size_t",
        || made(&[2], &[Shard(0)], &[1 << 62], Float32),
        "bytes of a tile",
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    let row = |row: &'static Wrong| {
        trial(format!("refused_layouts::{}", row.name), || {
            let error = (row.make)().unwrap_err();
            assert_eq!(error.scope(), Scope::Uniform, "{error}");
            assert!(error.to_string().contains(row.says), "{error}");
        })
    };
    ROWS.iter().map(row).collect()
}
