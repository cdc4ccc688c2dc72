//! Calls as the words that ranks send each other.

use nccl_ext_core::DataType;

use crate::layout::Layout;
use crate::mesh::Mesh;
use crate::placement::Placement;
use crate::plan::{LAYOUT_WORDS, layout_words};

/// The bucket and both layouts.
pub(super) const CALL_WORDS: usize = 2 * LAYOUT_WORDS + 1;

/// One call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) source: Layout,
    pub(crate) destination: Layout,
    /// The first call of the list that it may be fused with; its own number without one.
    pub(crate) bucket: u64,
}

impl Call {
    /// A call that is not part of a group.
    pub(crate) fn outside_of_groups(source: Layout, destination: Layout) -> Self {
        Self { source, destination, bucket: 0 }
    }

    /// Always [`CALL_WORDS`].
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        let layouts = [&self.source, &self.destination].map(layout_words);
        std::iter::once(self.bucket).chain(layouts.into_iter().flatten())
    }

    /// The call that these words came from; `None` for those of no call.
    pub(super) fn decode(words: &[u64]) -> Option<Self> {
        let (bucket, layouts) = words.split_first()?;
        let (source, destination) = layouts.split_at_checked(LAYOUT_WORDS)?;
        let (source, destination) = (decode_layout(source)?, decode_layout(destination)?);
        Some(Self { source, destination, bucket: *bucket })
    }
}

/// The layout that these words came from; `None` for those of no call.
fn decode_layout(words: &[u64]) -> Option<Layout> {
    let words: Vec<usize> =
        words.iter().map(|word| usize::try_from(*word).ok()).collect::<Option<_>>()?;
    let &[mesh_dims, d0, d1, start, p0, p1, dims, s0, s1, s2, data_type] = &*words else {
        return None;
    };
    let mesh = Mesh::new([d0, d1].get(..mesh_dims)?, start).ok()?;
    let placement = |raw: usize| match raw.checked_sub(1) {
        None => Some(Placement::Replicate),
        Some(dim) => i32::try_from(dim).ok().map(Placement::Shard),
    };
    let placements = [placement(p0)?, placement(p1)?];
    let data_type = DataType::ALL.iter().find(|known| **known as usize == data_type)?;
    let shape = [s0, s1, s2];
    Layout::new(mesh, placements.get(..mesh_dims)?, shape.get(..dims)?, *data_type).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Placement::{Replicate, Shard};

    fn layout(dims: &[usize], start: usize, placements: &[Placement], shape: &[usize]) -> Layout {
        let mesh = Mesh::new(dims, start).unwrap();
        Layout::new(mesh, placements, shape, DataType::Bfloat16).unwrap()
    }

    #[test]
    fn layouts_survive_the_words() {
        for layout in [
            layout(&[4], 0, &[Shard(0)], &[3]),
            layout(&[4, 1], 7, &[Shard(2), Replicate], &[3, 0, 5]),
            layout(&[2, 3], 1, &[Replicate, Replicate], &[3, 4]),
        ] {
            assert_eq!(decode_layout(&layout_words(&layout)), Some(layout));
        }
        assert_eq!(decode_layout(&[0; LAYOUT_WORDS]), None);
    }
}
