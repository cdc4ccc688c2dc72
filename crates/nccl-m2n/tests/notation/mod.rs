//! Layouts in the notation of the vendor's test tables, and what they mean, worked out without the
//! crate's own arithmetic.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use nccl_m2n::{DataType, Layout, Mesh, Placement};

/// `{2,2}@4 [R,S1] 4x2 fp16`: dimensions and first rank of the mesh, placements, shape of a tile,
/// type.
pub fn layout(text: &str) -> Layout {
    let [mesh, placements, shape, data_type] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let (dims, start) = mesh.split_once('@').unwrap();
    let dims = numbers(dims.trim_matches(['{', '}']), ',');
    let placements = placements.trim_matches(['[', ']']).split(',').map(|placement| {
        placement
            .strip_prefix('S')
            .map_or(Placement::Replicate, |dim| Placement::Shard(dim.parse().unwrap()))
    });
    let placements: Vec<_> = placements.collect();
    let data_type = DataType::ALL.iter().find(|known| known.name() == data_type).unwrap();
    let mesh = Mesh::new(&dims, start.parse().unwrap()).unwrap();
    let layout = Layout::new(mesh, &placements, &numbers(shape, 'x'), *data_type).unwrap();
    assert_eq!(layout.to_string(), text);
    layout
}

pub fn numbers(text: &str, separator: char) -> Vec<usize> {
    let words = text.split(separator).filter(|word| !word.is_empty());
    words.map(|word| word.parse().unwrap()).collect()
}

/// `r2,3: 0 1; r4: 2`, with any separator after the ranks.
pub fn by_rank<'a>(text: &'a str, separator: &str) -> Vec<(usize, &'a str)> {
    let groups = text.split("; ").map(|group| group.strip_prefix('r').unwrap());
    groups
        .flat_map(|group| {
            let (ranks, rest) = group.split_once(separator).unwrap();
            numbers(ranks, ',').into_iter().map(|rank| (rank, rest.trim())).collect::<Vec<_>>()
        })
        .collect()
}

/// The elements of the global tensor that a rank holds, by row-major number, in the order of its
/// tile. Empty for a rank that holds none.
pub fn elements(layout: &Layout, rank: usize) -> Vec<usize> {
    if !layout.mesh().ranks().contains(&rank) {
        return vec![];
    }
    let dims = layout.mesh().dims();
    let local = rank - layout.mesh().start_rank();
    let columns = dims.get(1).copied().unwrap_or(1);
    let position = [local / columns, local % columns];
    let shape = layout.local_shape();
    let mut origin = vec![0; shape.len()];
    let mut global: Vec<usize> = shape.to_vec();
    for (axis, placement) in layout.placements().iter().enumerate() {
        if let Placement::Shard(dim) = placement {
            let dim = usize::try_from(*dim).unwrap();
            origin[dim] = position[axis] * shape[dim];
            global[dim] = shape[dim] * dims[axis];
        }
    }
    let count = shape.iter().product::<usize>();
    let element = |mut index: usize| {
        let mut coordinates = vec![0; shape.len()];
        for x in (0..shape.len()).rev() {
            coordinates[x] = index % shape[x];
            index /= shape[x];
        }
        (0..shape.len()).fold(0, |linear, x| linear * global[x] + origin[x] + coordinates[x])
    };
    (0..count).map(element).collect()
}

/// A tile of the tensor whose elements are their own numbers, as bytes.
pub fn tile(layout: &Layout, rank: usize) -> Vec<u8> {
    bytes(layout, &elements(layout, rank))
}

pub fn bytes(layout: &Layout, elements: &[usize]) -> Vec<u8> {
    let size = layout.data_type().size();
    elements.iter().flat_map(|n| (*n as u64).to_le_bytes()[..size].to_vec()).collect()
}
