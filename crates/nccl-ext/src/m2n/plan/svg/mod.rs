//! The drawing: both meshes as grids of ranks, and between them bands as wide as the bytes.

mod bands;
mod drawing;
mod panel;

pub(super) use drawing::draw;
