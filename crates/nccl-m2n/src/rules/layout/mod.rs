//! Rules of one side's layout (M2N 2.1 #5, #21 to #24, #29, #30).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{DataType, rules};

use crate::mesh::Mesh;
use crate::placement::Placement;
use crate::shape::MAX_TENSOR_DIMS;

/// What the rules of a layout look at.
pub(crate) struct LayoutFacts<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) placements: &'a [Placement],
    pub(crate) local_shape: &'a [usize],
    pub(crate) data_type: DataType,
}

impl LayoutFacts<'_> {
    /// One for each dimension of the mesh. What is missing counts as `Replicate` where that makes
    /// no difference, and what is too much must be `Replicate`.
    fn placements_fit(&self) -> bool {
        let given = self.placements;
        let missing = self.mesh.dims().iter().skip(given.len());
        (1..=2).contains(&given.len())
            && missing.into_iter().all(|dim| *dim == 1)
            && given.iter().skip(self.mesh.ndims()).all(|extra| *extra == Placement::Replicate)
    }

    fn placement_outside(&self) -> Option<&Placement> {
        self.placements.iter().find(|given| given.resolved(self.local_shape.len()).is_none())
    }

    fn sharded(&self) -> impl Iterator<Item = (usize, usize)> {
        let ndims = self.local_shape.len();
        self.placements.iter().zip(self.mesh.padded_dims()).filter_map(move |(given, ranks)| {
            match given.resolved(ndims)? {
                Placement::Shard(dim) => Some((usize::try_from(dim).ok()?, ranks)),
                Placement::Replicate => None,
            }
        })
    }

    /// Two sharded dimensions, taken apart into calls that can be made (case M6).
    fn rows_instead(&self) -> String {
        let mut sharded = self.sharded();
        let (Some((outer, rows)), Some((inner, columns))) = (sharded.next(), sharded.next()) else {
            return "one Shard".into();
        };
        let start = self.mesh.start_rank();
        format!(
            "one Shard; make {rows} call(s) instead, one for each block of dimension {outer}: block \
             i lies on mesh {{{columns}}} from rank {start} + {columns} * i with \
             Shard({inner}), and on the ranks that hold it on the other side"
        )
    }

    fn global_extent(&self) -> Option<usize> {
        self.sharded().try_fold(1, |_, (dim, ranks)| {
            self.local_shape.get(dim).copied().unwrap_or(0).checked_mul(ranks)
        })
    }

    /// Of the tile with empty dimensions as 1: strides must fit too, wherever the 0 stands.
    fn local_bytes(&self) -> Option<usize> {
        let mut extents = self.local_shape.iter().map(|extent| (*extent).max(1));
        let elements = extents.try_fold(1_usize, usize::checked_mul);
        elements?.checked_mul(self.data_type.size())
    }

    fn global_bytes(&self) -> Option<usize> {
        let shards = self.sharded().map(|(_, ranks)| ranks).product();
        self.local_bytes()?.checked_mul(shards)
    }

    fn described(&self) -> String {
        format!("{:?} of {}", self.local_shape, self.data_type)
    }
}

/// Whether the library moves elements of this type (M2N 1.5).
fn supports(data_type: DataType) -> bool {
    use DataType::{
        Bfloat16, Float8E4m3, Float8E5m2, Float16, Float32, Float64, Int8, Int32, Int64, Uint8,
        Uint32, Uint64,
    };
    matches!(
        data_type,
        Int8 | Uint8
            | Int32
            | Uint32
            | Int64
            | Uint64
            | Float16
            | Bfloat16
            | Float32
            | Float64
            | Float8E4m3
            | Float8E5m2
    )
}

fn list(placements: &[Placement]) -> String {
    let texts: Vec<_> = placements.iter().map(|placement| format!("{placement:?}")).collect();
    format!("[{}]", texts.join(", "))
}

rules! {
    /// Checked by every way to make a layout.
    RULES over LayoutFacts {
        "layout.dimensions" on "local_shape": "a tensor has one to three dimensions"
            ("M2N 2.1 #5", Uniform)
            |f| !(1..=MAX_TENSOR_DIMS).contains(&f.local_shape.len())
                => ("1 to 3", f.local_shape.len());
        "layout.data-type" on "data_type": "elements have a type that libnccl_m2n moves"
            ("M2N 2.1 #21", Uniform)
            |f| !supports(f.data_type)
                => ("int8, uint8, int32, uint32, int64, uint64, fp16, bf16, fp32, fp64, fp8-e4m3 or \
                     fp8-e5m2", f.data_type);
        "layout.placements" on "placements": "there is one placement for each dimension of the mesh"
            ("M2N 6", Uniform)
            |f| !f.placements_fit() => (f.mesh.ndims(), list(f.placements));
        "layout.shard-dimension" on "placements":
            "a sharded dimension is one of the tensor's; negative ones count from the end"
            ("M2N 2.1 #22, #23", Uniform)
            |f| f.placement_outside().is_some()
                => (format!("-{0} to {1}", f.local_shape.len(), f.local_shape.len() - 1),
                    list(f.placements));
        "layout.one-shard" on "placements": "one dimension of a mesh shards at most"
            ("M2N 2.1 #24", Uniform)
            |f| f.sharded().count() > 1 => (f.rows_instead(), list(f.placements));
        "layout.extent" on "local_shape": "the global extent of the sharded dimension fits size_t"
            ("M2N 2.1 #29", Uniform)
            |f| f.global_extent().is_none()
                => (format!("a global extent up to {}", usize::MAX), f.described());
        "layout.local-bytes" on "local_shape": "the bytes of a tile fit size_t, with empty dimensions as 1"
            ("M2N 2.1 #30", Uniform)
            |f| f.local_bytes().is_none() => (format!("up to {}", usize::MAX), f.described());
        "layout.global-bytes" on "local_shape":
            "the bytes of the whole tensor fit size_t, with empty dimensions as 1"
            ("M2N 2.3 #1", Uniform)
            |f| f.global_bytes().is_none() => (format!("up to {}", usize::MAX), f.described());
    }
}
