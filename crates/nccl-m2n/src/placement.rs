//! Placements: what a dimension of a mesh does to a tensor.

use std::fmt;

/// What one dimension of a mesh does to the tensor: cut it, or copy it.
///
/// At most one dimension of a mesh shards: two sharded ones cannot be expressed (M2N 2.1 #24).
/// `nccl_ep::Placement` is another thing: it says which rank owns which expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Placement {
    /// Every rank along it holds the same.
    #[doc(alias = "NCCL_RESHARD_REPLICATE")]
    Replicate,
    /// Cuts this dimension of the tensor into equal blocks, one for each rank along it. Negative
    /// dimensions count from the end, as in the vendor's Python: -1 is the last. A
    /// [`Layout`](crate::Layout) keeps the resolved number.
    #[doc(alias = "NCCL_RESHARD_SHARD")]
    Shard(i32),
}

impl Placement {
    /// Counted from the front, for a tensor of `ndims` dimensions. `None` when it has no such one.
    pub(crate) fn resolved(self, ndims: usize) -> Option<Self> {
        let Self::Shard(dim) = self else { return Some(self) };
        let ndims = i32::try_from(ndims).ok()?;
        let front = if dim < 0 { dim.checked_add(ndims)? } else { dim };
        (0..ndims).contains(&front).then_some(Self::Shard(front))
    }

    /// The C value.
    pub(crate) fn as_raw(self) -> core::ffi::c_int {
        match self {
            Self::Replicate => nccl_m2n_sys::NCCL_RESHARD_REPLICATE,
            Self::Shard(dim) => dim,
        }
    }
}

/// As the vendor's test tables write them: `R`, `S0`.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicate => f.write_str("R"),
            Self::Shard(dim) => write!(f, "S{dim}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Placement::{Replicate, Shard};

    #[test]
    fn negative_dimensions_count_from_the_end() {
        assert_eq!(Shard(-1).resolved(3), Some(Shard(2)));
        assert_eq!(Shard(-3).resolved(3), Some(Shard(0)));
        assert_eq!(Shard(2).resolved(3), Some(Shard(2)));
        assert_eq!(Shard(-4).resolved(3), None);
        assert_eq!(Shard(3).resolved(3), None);
        assert_eq!(Shard(i32::MIN).resolved(3), None);
        assert_eq!(Replicate.resolved(0), Some(Replicate));
        assert_eq!((Replicate.as_raw(), Shard(2).as_raw()), (-1, 2));
    }
}
