//! Meshes: which ranks hold one side of a tensor.

use std::fmt;
use std::ops::Range;

use nccl_ext_core::Result;
use nccl_ext_core::rules::check;

use crate::rules::mesh::{self, MeshFacts, RankListFacts};

/// Most dimensions a mesh has.
#[doc(alias = "NCCL_RESHARD_MAX_MESH_DIMS")]
#[doc(alias = "MESH_NDIMS")]
pub const MAX_MESH_DIMS: usize = 2;

/// A grid of ranks: topology, without a tensor.
///
/// A mesh owns the interval of ranks from [`start_rank`](Self::start_rank) on, in row-major order;
/// ranks are those of the communicator that a call is made with. A mesh of `[4]` and one of
/// `[4, 1]` hold the same ranks but are not equal: every rank passes the same form (M2N 6).
///
/// ```
/// use nccl_m2n::Mesh;
///
/// let mesh = Mesh::new(&[2, 3], 4)?;
/// assert_eq!(mesh.ranks(), 4..10);
/// assert_eq!(mesh, Mesh::from_rank_grid(&[[4, 5, 6], [7, 8, 9]])?);
/// assert_eq!(Mesh::from_ranks(&[4, 5, 6])?, Mesh::new(&[3], 4)?);
/// # Ok::<(), nccl_m2n::Error>(())
/// ```
#[doc(alias = "ncclMesh_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "SerializedMesh", into = "SerializedMesh"))]
pub struct Mesh {
    /// Padded with 1.
    dims: [usize; MAX_MESH_DIMS],
    ndims: usize,
    start_rank: usize,
}

impl Mesh {
    /// A mesh of these dimensions, one or two, whose first rank is `start_rank`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) without dimensions or with more than two, for a
    /// dimension of 0, and when the ranks do not fit a C int.
    pub fn new(dims: &[usize], start_rank: usize) -> Result<Self> {
        let facts = MeshFacts { dims, start_rank };
        check(mesh::RULES, |broken| broken(&facts))?;
        let mut mesh = Self { dims: [1; MAX_MESH_DIMS], ndims: dims.len(), start_rank };
        for (to, from) in mesh.dims.iter_mut().zip(dims) {
            *to = *from;
        }
        Ok(mesh)
    }

    /// The one-dimensional mesh of these ranks.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) without ranks, and when they are not one ascending
    /// interval.
    pub fn from_ranks(ranks: &[usize]) -> Result<Self> {
        Self::check_ranks(&RankListFacts { all: ranks, lengths: (ranks.len(), ranks.len()) })?;
        Self::new(&[ranks.len()], ranks.first().copied().unwrap_or(0))
    }

    /// The two-dimensional mesh of this rectangle of ranks, given by its rows.
    ///
    /// # Errors
    /// As [`from_ranks`](Self::from_ranks), and when the rows differ in length.
    pub fn from_rank_grid<R: AsRef<[usize]>>(rows: &[R]) -> Result<Self> {
        let all: Vec<usize> = rows.iter().flat_map(|row| row.as_ref().iter().copied()).collect();
        let lengths = || rows.iter().map(|row| row.as_ref().len());
        let lengths = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        Self::check_ranks(&RankListFacts { all: &all, lengths })?;
        Self::new(&[rows.len(), lengths.0], all.first().copied().unwrap_or(0))
    }

    fn check_ranks(facts: &RankListFacts<'_>) -> Result<()> {
        check(mesh::FROM_RANKS, |broken| broken(facts))
    }

    /// The dimensions, as given.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.ndims]
    }

    /// Number of dimensions, one or two.
    #[must_use]
    pub fn ndims(&self) -> usize {
        self.ndims
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.dims[0] * self.dims[1]
    }

    /// The first rank.
    #[must_use]
    pub fn start_rank(&self) -> usize {
        self.start_rank
    }

    /// All ranks.
    #[must_use]
    pub fn ranks(&self) -> Range<usize> {
        self.start_rank..self.start_rank + self.size()
    }

    /// Whether a rank belongs to it.
    #[must_use]
    pub fn contains(&self, rank: usize) -> bool {
        self.ranks().contains(&rank)
    }

    /// The dimensions, padded with 1.
    pub(crate) fn padded_dims(&self) -> [usize; MAX_MESH_DIMS] {
        self.dims
    }
}

/// As the vendor writes them: `{2,3}@4`.
impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.dims() {
            [a, b] => write!(f, "{{{a},{b}}}@{}", self.start_rank),
            _ => write!(f, "{{{}}}@{}", self.dims[0], self.start_rank),
        }
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mesh({self})")
    }
}

/// The serialised form.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SerializedMesh {
    dims: Vec<usize>,
    start_rank: usize,
}

#[cfg(feature = "serde")]
impl From<Mesh> for SerializedMesh {
    fn from(mesh: Mesh) -> Self {
        Self { dims: mesh.dims().to_vec(), start_rank: mesh.start_rank }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<SerializedMesh> for Mesh {
    type Error = nccl_ext_core::Error;

    fn try_from(serialized: SerializedMesh) -> Result<Self> {
        Self::new(&serialized.dims, serialized.start_rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_two_dimensions_are_told_apart() {
        let (flat, tall) = (Mesh::new(&[4], 0).unwrap(), Mesh::new(&[4, 1], 0).unwrap());
        assert_ne!(flat, tall);
        assert_eq!((flat.size(), tall.size()), (4, 4));
        assert_eq!((flat.dims(), tall.dims()), (&[4][..], &[4, 1][..]));
        assert_eq!(format!("{flat} {tall:?}"), "{4}@0 Mesh({4,1}@0)");
    }

    #[test]
    fn lists_of_ranks_must_be_intervals() {
        let message = |ranks: &[usize]| Mesh::from_ranks(ranks).unwrap_err().to_string();
        assert!(message(&[1, 0]).contains("expected rank 2, found 0"), "{}", message(&[1, 0]));
        assert!(message(&[]).contains("at least one rank"));
        let grid = |rows: &[&[usize]]| Mesh::from_rank_grid(rows).unwrap_err().to_string();
        assert!(grid(&[&[0, 2], &[1, 3]]).contains("expected rank 1, found 2"));
        assert!(grid(&[&[0, 1], &[2]]).contains("rows of 1 to 2 ranks"));
        assert!(grid(&[]).contains("at least one rank"));
        assert!(grid(&[&[], &[]]).contains("at least one rank"));
    }

    #[test]
    fn numbers_stay_in_a_c_int() {
        let message = |dims: &[usize], start| Mesh::new(dims, start).unwrap_err().to_string();
        assert!(message(&[65536, 65536], 0).contains("counted by a C int"));
        assert!(message(&[usize::MAX, 2], 0).contains("counted by a C int"));
        assert!(message(&[2], 2_147_483_646).contains("expected at most 2147483645"));
        assert!(Mesh::new(&[1], 2_147_483_646).is_ok());
        assert!(message(&[0], 0).contains("has ranks"));
        assert!(message(&[1, 1, 1], 0).contains("one or two dimensions"));
    }
}
