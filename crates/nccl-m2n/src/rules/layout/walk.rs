//! Layouts that break each row.

use crate::Placement::{Replicate, Shard};
use crate::rules::walk::no_call;
use crate::{DataType, Error, Layout, Mesh};

pub(in crate::rules) fn violate(row: &str) -> Error {
    let mesh = |dims: &[usize]| Mesh::new(dims, 0).unwrap();
    let (two, grid) = (mesh(&[2]), mesh(&[2, 2]));
    let (bytes, halves) = (DataType::Uint8, DataType::Float16);
    let made = match row {
        "layout.dimensions" => Layout::new(two, &[Replicate], &[1; 4], bytes),
        "layout.data-type" => Layout::new(two, &[Replicate], &[1], DataType::Float4x2),
        "layout.placements" => Layout::new(grid, &[Replicate], &[1], bytes),
        "layout.shard-dimension" => Layout::new(two, &[Shard(-2)], &[1], bytes),
        "layout.one-shard" => Layout::new(grid, &[Shard(0), Shard(0)], &[1], bytes),
        "layout.extent" => Layout::new(two, &[Shard(0)], &[1 << 63], bytes),
        "layout.local-bytes" => Layout::new(two, &[Replicate], &[1 << 63], halves),
        "layout.global-bytes" => Layout::new(two, &[Shard(0)], &[1 << 62], halves),
        _ => no_call(row),
    };
    made.unwrap_err()
}
