//! Layouts of tensors over meshes (M2N 3.1) in the notation of the specification, and what they
//! mean, worked out without the arithmetic of `nccl-m2n`.

use nccl_ext_core::DataType;

/// One side of a reshard, as `{2,2}@4 [R,S1] 4x2 fp16` says it: the mesh's dimensions and first
/// rank, the placements, the shape of a tile, the type of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutText {
    /// Ranks along each dimension of the mesh.
    pub dims: Vec<usize>,
    /// The mesh's first rank.
    pub start_rank: usize,
    /// For each dimension of the mesh the tensor's dimension that it shards, if any.
    pub shards: Vec<Option<usize>>,
    /// The shape of a tile.
    pub local_shape: Vec<usize>,
    /// The type of an element.
    pub data_type: DataType,
}

impl LayoutText {
    /// Reads the notation.
    ///
    /// # Panics
    /// If the text is none.
    pub fn parse(text: &str) -> Self {
        let [mesh, placements, shape, data_type] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let (dims, start_rank) = mesh.split_once('@').unwrap();
        let placements = placements.trim_matches(['[', ']']).split(',');
        let shard = |placement: &str| placement.strip_prefix('S').map(|dim| dim.parse().unwrap());
        Self {
            dims: numbers(dims.trim_matches(['{', '}']), ','),
            start_rank: start_rank.parse().unwrap(),
            shards: placements.map(shard).collect(),
            local_shape: numbers(shape, 'x'),
            data_type: *DataType::ALL.iter().find(|known| known.name() == data_type).unwrap(),
        }
    }

    /// The elements of the global tensor that a rank holds, by row-major number, in the order of its
    /// tile. Empty for a rank that holds none.
    pub fn elements(&self, rank: usize) -> Vec<usize> {
        let Self { dims, start_rank, shards, local_shape: shape, .. } = self;
        let size: usize = dims.iter().product();
        if !(*start_rank..start_rank + size).contains(&rank) {
            return vec![];
        }
        let local = rank - start_rank;
        let columns = dims.get(1).copied().unwrap_or(1);
        let position = [local / columns, local % columns];
        let mut origin = vec![0; shape.len()];
        let mut global = shape.clone();
        for (axis, shard) in shards.iter().enumerate() {
            if let Some(dim) = *shard {
                origin[dim] = position[axis] * shape[dim];
                global[dim] = shape[dim] * dims[axis];
            }
        }
        let element = |mut index: usize| {
            let mut coordinates = vec![0; shape.len()];
            for x in (0..shape.len()).rev() {
                coordinates[x] = index % shape[x];
                index /= shape[x];
            }
            (0..shape.len()).fold(0, |linear, x| linear * global[x] + origin[x] + coordinates[x])
        };
        (0..shape.iter().product()).map(element).collect()
    }

    /// A rank's tile, as bytes, of the tensor whose elements are their own numbers.
    pub fn tile(&self, rank: usize) -> Vec<u8> {
        self.bytes(&self.elements(rank))
    }

    /// These numbers as elements.
    pub fn bytes(&self, elements: &[usize]) -> Vec<u8> {
        let size = self.data_type.size();
        elements.iter().flat_map(|n| (*n as u64).to_le_bytes()[..size].to_vec()).collect()
    }
}

/// Numbers with a separator between them.
///
/// # Panics
/// If something else is between them.
pub fn numbers(text: &str, separator: char) -> Vec<usize> {
    let words = text.split(separator).filter(|word| !word.is_empty());
    words.map(|word| word.parse().unwrap()).collect()
}

/// What a text as `r2,3: 0 1; r4: 2` says of each rank, with any separator after the ranks.
///
/// # Panics
/// If the text is no such list.
pub fn by_rank<'a>(text: &'a str, separator: &str) -> Vec<(usize, &'a str)> {
    let groups = text.split("; ").map(|group| group.strip_prefix('r').unwrap());
    groups
        .flat_map(|group| {
            let (ranks, rest) = group.split_once(separator).unwrap();
            numbers(ranks, ',').into_iter().map(|rank| (rank, rest.trim())).collect::<Vec<_>>()
        })
        .collect()
}
