//! Rules of meshes (M2N 2.1 #10 to #17, M2N 6).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

/// Most ranks, and the highest end of an interval of ranks: C counts them with an `int`.
const MAX_RANKS: usize = i32::MAX as usize;

/// What the rules of a mesh look at.
pub(crate) struct MeshFacts<'a> {
    pub(crate) dims: &'a [usize],
    pub(crate) start_rank: usize,
}

impl MeshFacts<'_> {
    fn ranks(&self) -> usize {
        self.dims.iter().fold(1, |product, dim| product.saturating_mul(*dim))
    }
}

rules! {
    /// Checked by every way to make a mesh.
    RULES over MeshFacts {
        "mesh.dimensions" on "dims": "a mesh has one or two dimensions" ("M2N 2.1 #10", Uniform)
            |f| !(1..=2).contains(&f.dims.len()) => ("1 or 2", f.dims.len());
        "mesh.positive" on "dims": "every dimension of a mesh has ranks" ("M2N 2.1 #15", Uniform)
            |f| f.dims.contains(&0) => ("at least 1 each", format!("{:?}", f.dims));
        "mesh.size" on "dims": "ranks are counted by a C int" ("M2N 2.1 #16", Uniform)
            |f| f.ranks() > MAX_RANKS
                => (format!("at most {MAX_RANKS} ranks"), format!("{:?}", f.dims));
        "mesh.interval" on "start_rank": "the end of the mesh fits a C int" ("M2N 2.1 #17", Uniform)
            |f| f.start_rank > MAX_RANKS - f.ranks()
                => (format!("at most {}", MAX_RANKS - f.ranks()), f.start_rank);
    }
}

/// What the rules of a list of ranks look at.
pub(crate) struct RankListFacts<'a> {
    /// All of them, row by row.
    pub(crate) all: &'a [usize],
    /// Shortest and longest row.
    pub(crate) lengths: (usize, usize),
}

impl RankListFacts<'_> {
    /// Where the list leaves the interval that starts at its first rank.
    fn gap(&self) -> Option<(usize, usize)> {
        let first = self.all.first().copied().unwrap_or(0);
        let expected = (0..self.all.len()).map(|i| first.saturating_add(i));
        expected.zip(self.all.iter().copied()).find(|(expected, found)| expected != found)
    }
}

rules! {
    /// Checked when a mesh is made from a list of its ranks.
    FROM_RANKS over RankListFacts {
        "mesh.ranks-exist" on "ranks": "a mesh has at least one rank" ("M2N 6", Uniform)
            |f| f.all.is_empty() || f.lengths.0 == 0 => ("ranks in every row", "none");
        "mesh.rows-equal" on "ranks": "the rows of a mesh are equally long" ("M2N 6", Uniform)
            |f| f.lengths.0 != f.lengths.1
                => ("equal rows", format!("rows of {} to {} ranks", f.lengths.0, f.lengths.1));
        "mesh.contiguous" on "ranks":
            "a mesh is one ascending interval of ranks, row by row; order the communicator's ranks \
             that way (ncclCommSplit keys)" ("M2N 3.1", Uniform)
            |f| f.gap().is_some()
                => (format!("rank {}", f.gap().unwrap_or_default().0),
                    f.gap().unwrap_or_default().1);
    }
}
