//! Meshes that break each row.

use crate::rules::walk::no_call;
use crate::{Error, Mesh};

pub(in crate::rules) fn violate(row: &str) -> Error {
    let made = match row {
        "mesh.ranks-exist" => Mesh::from_ranks(&[]),
        "mesh.rows-equal" => Mesh::from_rank_grid(&[&[0, 1][..], &[2]]),
        "mesh.contiguous" => Mesh::from_ranks(&[1, 0]),
        "mesh.dimensions" => Mesh::new(&[1, 1, 1], 0),
        "mesh.positive" => Mesh::new(&[2, 0], 0),
        "mesh.size" => Mesh::new(&[65536, 65536], 0),
        "mesh.interval" => Mesh::new(&[2], 2_147_483_646),
        _ => no_call(row),
    };
    made.unwrap_err()
}
