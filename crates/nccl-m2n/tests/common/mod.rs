//! Reshards of bytes on the CPU backend, and layouts in the notation of the specification.

#![allow(dead_code, reason = "each test binary uses its part")]

use nccl_ext_test::layout::LayoutText;
use nccl_ext_test::worlds::STREAM;
use nccl_m2n::{
    Comm, DistTensor, DistTensorMut, Layout, MemorySpace, Mesh, Placement, Result, Runtime,
};

/// `{2,2}@4 [R,S1] 4x2 fp16`: dimensions and first rank of the mesh, placements, shape of a tile,
/// type.
pub(crate) fn layout(text: &str) -> Layout {
    let LayoutText { side, data_type } = LayoutText::parse(text);
    let dims: Vec<_> = side.dims.iter().map(|dim| usize::try_from(*dim).unwrap()).collect();
    let mesh = Mesh::new(&dims, usize::try_from(side.start).unwrap()).unwrap();
    let placement =
        |dim: &i32| if *dim < 0 { Placement::Replicate } else { Placement::Shard(*dim) };
    let placements: Vec<_> = side.placements.iter().map(placement).collect();
    let layout = Layout::new(mesh, &placements, &side.shape, data_type).unwrap();
    assert_eq!(layout.to_string(), text);
    layout
}

/// What the layout means, worked out without the crate's own arithmetic.
fn meaning(layout: &Layout) -> LayoutText {
    LayoutText::parse(&layout.to_string())
}

/// The elements of the global tensor that a rank holds, by row-major number, in the order of its
/// tile. Empty for a rank that holds none.
pub(crate) fn elements(layout: &Layout, rank: usize) -> Vec<usize> {
    meaning(layout).elements(rank)
}

/// A rank's tile, as bytes, of the tensor whose elements are their own numbers.
pub(crate) fn tile(layout: &Layout, rank: usize) -> Vec<u8> {
    meaning(layout).tile(rank)
}

/// These numbers as elements.
pub(crate) fn bytes(layout: &Layout, elements: &[usize]) -> Vec<u8> {
    meaning(layout).bytes(elements)
}

/// A tile of bytes, whatever the layout's type.
pub(crate) fn source<'a>(tile: &'a [u8], layout: &Layout) -> DistTensor<'a> {
    if tile.is_empty() && layout.local_bytes() != 0 {
        return DistTensor::inactive(layout);
    }
    // SAFETY: the slice is borrowed for as long as the tensor lives, and the CPU backend is done
    // when a call returns.
    unsafe { DistTensor::from_raw(tile.as_ptr().cast(), layout, MemorySpace::Host) }
}

/// As [`source`], to be written.
pub(crate) fn destination<'a>(tile: &'a mut [u8], layout: &Layout) -> DistTensorMut<'a> {
    if tile.is_empty() && layout.local_bytes() != 0 {
        return DistTensorMut::inactive(layout);
    }
    // SAFETY: as above, borrowed mutably.
    unsafe { DistTensorMut::from_raw(tile.as_mut_ptr().cast(), layout, MemorySpace::Host) }
}

/// Reshards one tensor of bytes.
pub(crate) fn reshard(
    runtime: &Runtime,
    comm: &Comm,
    from: (&[u8], &Layout),
    to: (&mut [u8], &Layout),
) -> Result<()> {
    let mut destination = destination(to.0, to.1);
    runtime.reshard(comm, &source(from.0, from.1), &mut destination, STREAM)
}
