//! The calls: handles, single reshards, groups.

pub(super) mod group;
pub(super) mod runtime;
pub(super) mod single;

mod fused;
mod launch;
