//! The table, by what the calls are about.

mod group;
mod handle;
mod objects;
mod steps;
mod tensor;
mod tokens;
mod topk;

pub(crate) use group::config;

use crate::table::Row;

pub(crate) fn all() -> Vec<Row> {
    let parts = [
        tensor::rows(),
        objects::rows(),
        group::rows(),
        handle::rows(),
        topk::rows(),
        steps::rows(),
        tokens::rows(),
    ];
    parts.into_iter().flatten().collect()
}
