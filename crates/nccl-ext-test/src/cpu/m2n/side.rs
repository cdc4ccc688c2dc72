//! One side of a reshard.

use nccl_m2n_sys::NCCL_RESHARD_REPLICATE;

pub const REPLICATE: i32 = NCCL_RESHARD_REPLICATE;

/// One side of a reshard as the specification writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSide {
    pub dims: Vec<i32>,
    pub start: i32,
    pub placements: Vec<i32>,
    pub shape: Vec<usize>,
}

impl TensorSide {
    /// Reads `{2,2}@4 [R,S1] 4x2`.
    pub fn parse(text: &str) -> Self {
        let [mesh, placements, shape] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let (dims, start) = mesh.split_once('@').unwrap();
        let inside = |text: &str, open, close| {
            let text = text.strip_prefix(open).unwrap().strip_suffix(close).unwrap();
            text.split(',').map(str::to_owned).collect::<Vec<_>>()
        };
        let placement = |text: &String| match text.strip_prefix('S') {
            Some(dim) => dim.parse().unwrap(),
            None => REPLICATE,
        };
        Self {
            dims: inside(dims, '{', '}').iter().map(|dim| dim.parse().unwrap()).collect(),
            start: start.parse().unwrap(),
            placements: inside(placements, '[', ']').iter().map(placement).collect(),
            shape: shape.split('x').map(|extent| extent.parse().unwrap()).collect(),
        }
    }

    pub fn ranks(&self) -> std::ops::Range<usize> {
        let size: i32 = self.dims.iter().product();
        self.start as usize..(self.start + size) as usize
    }

    pub fn has(&self, rank: usize) -> bool {
        self.ranks().contains(&rank)
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn global(&self) -> Vec<usize> {
        let mut global = self.shape.clone();
        for (axis, &placement) in self.placements.iter().enumerate() {
            if placement != REPLICATE {
                global[placement as usize] *= self.dims[axis] as usize;
            }
        }
        global
    }

    /// The oracle: row-major global indices of a rank's tile, element by element.
    ///
    /// The rank's coordinates on the mesh come from counting ranks row-major; nothing here knows
    /// of normal forms, runs or strides.
    pub fn tile(&self, rank: usize) -> Vec<usize> {
        let mut coordinates = vec![0; self.dims.len()];
        for _ in self.start as usize..rank {
            for axis in (0..self.dims.len()).rev() {
                coordinates[axis] += 1;
                if coordinates[axis] < self.dims[axis] as usize {
                    break;
                }
                coordinates[axis] = 0;
            }
        }
        let mut begin = vec![0; self.shape.len()];
        for (axis, &placement) in self.placements.iter().enumerate() {
            if placement != REPLICATE {
                begin[placement as usize] += coordinates[axis] * self.shape[placement as usize];
            }
        }
        let global = self.global();
        let mut indices = vec![0];
        for (dim, &extent) in self.shape.iter().enumerate() {
            indices = indices
                .into_iter()
                .flat_map(|index| {
                    let begin = begin[dim];
                    (0..extent).map(move |i| (index, begin + i))
                })
                .map(|(index, i)| index * global[dim] + i)
                .collect();
        }
        indices
    }
}
