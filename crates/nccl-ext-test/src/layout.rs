//! Layouts of tensors over meshes (M2N 3.1) in the notation of the specification, and what they
//! mean, worked out without the arithmetic of `nccl-m2n`.

use nccl_ext_core::DataType;

use crate::cpu::m2n::TensorSide;

/// One side of a reshard, as `{2,2}@4 [R,S1] 4x2 fp16` says it: the mesh's dimensions and first
/// rank, the placements, the shape of a tile, the type of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutText {
    /// All but the type.
    pub side: TensorSide,
    /// The type of an element.
    pub data_type: DataType,
}

impl LayoutText {
    /// Reads the notation.
    ///
    /// # Panics
    /// If the text is none.
    pub fn parse(text: &str) -> Self {
        let (side, data_type) = text.rsplit_once(' ').unwrap();
        let data_type = DataType::ALL.iter().find(|known| known.name() == data_type).unwrap();
        Self { side: TensorSide::parse(side), data_type: *data_type }
    }

    /// The elements of the global tensor that a rank holds, by row-major number, in the order of its
    /// tile. Empty for a rank that holds none.
    pub fn elements(&self, rank: usize) -> Vec<usize> {
        if self.side.has(rank) { self.side.tile(rank) } else { vec![] }
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
