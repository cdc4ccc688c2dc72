//! What a rank must hold: cut out of the file's bytes by plain loops.
//!
//! It knows no mesh, placement or plan, and shares no code with what is tested.

/// A block of one dimension: of so many equal ones, which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) dim: usize,
    pub(super) parts: usize,
    pub(super) part: usize,
}

/// The elements whose coordinate lies in the block, in their order; all of them without a cut.
pub(super) fn tile(shape: &[usize], data: &[u8], cut: Option<Cut>) -> Vec<u8> {
    let Some(Cut { dim, parts, part }) = cut else { return data.to_vec() };
    let elements: usize = shape.iter().product();
    let size = data.len() / elements;
    // Elements from one coordinate of the dimension to the next.
    let step: usize = shape[dim + 1..].iter().product();
    let block = shape[dim] / parts;
    let mut tile = Vec::with_capacity(data.len() / parts);
    for (number, element) in data.chunks_exact(size).enumerate() {
        let coordinate = number / step % shape[dim];
        if coordinate / block == part {
            tile.extend_from_slice(element);
        }
    }
    tile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_by_hand() {
        let cut = |dim, parts, part| Some(Cut { dim, parts, part });
        // Elements of two bytes, 2 x 4: row by row.
        let data: Vec<u8> = (0..8).flat_map(|i| [i, 100 + i]).collect();
        let of = |numbers: &[u8]| numbers.iter().flat_map(|i| [*i, 100 + i]).collect::<Vec<_>>();
        assert_eq!(tile(&[2, 4], &data, None), data);
        assert_eq!(tile(&[2, 4], &data, cut(0, 2, 1)), of(&[4, 5, 6, 7]));
        assert_eq!(tile(&[2, 4], &data, cut(1, 2, 0)), of(&[0, 1, 4, 5]));
        assert_eq!(tile(&[2, 4], &data, cut(1, 4, 3)), of(&[3, 7]));
        assert_eq!(tile(&[2, 2, 2], &data, cut(1, 2, 1)), of(&[2, 3, 6, 7]));
        assert_eq!(tile(&[8], &data, cut(0, 4, 2)), of(&[4, 5]));
    }
}
