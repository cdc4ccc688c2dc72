//! Which rank owns which expert.

/// Number of an expert in the whole model, `0..num_experts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalExpert(pub usize);

/// Number of an expert on its rank, `0..local experts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalExpert(pub usize);

/// Which rank owns which expert: contiguous blocks, rank `r` owns `r * local .. (r + 1) * local`
/// (EP 0.3).
///
/// Not the `Placement` of `nccl-m2n`, which says where a dimension of a tensor lies in a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    local: usize,
    ranks: usize,
}

impl Placement {
    /// `experts` over `ranks`; `None` unless both are positive and divide evenly.
    #[must_use]
    pub fn new(experts: usize, ranks: usize) -> Option<Self> {
        let even = experts > 0 && ranks > 0 && experts.is_multiple_of(ranks);
        even.then(|| Self { local: experts / ranks, ranks })
    }

    pub(crate) fn blocks(local: usize, ranks: usize) -> Self {
        Self { local: local.max(1), ranks }
    }

    /// Experts of each rank.
    #[must_use]
    pub fn local_experts(self) -> usize {
        self.local
    }

    /// The owner of an expert and its number there; `None` for an expert that does not exist.
    #[must_use]
    pub fn owner(self, expert: GlobalExpert) -> Option<(usize, LocalExpert)> {
        let rank = expert.0 / self.local;
        (rank < self.ranks).then_some((rank, LocalExpert(expert.0 % self.local)))
    }

    /// The model-wide number of a rank's expert; `None` when there is no such rank or expert.
    #[must_use]
    pub fn global(self, rank: usize, expert: LocalExpert) -> Option<GlobalExpert> {
        let exists = rank < self.ranks && expert.0 < self.local;
        exists.then_some(GlobalExpert(rank * self.local + expert.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_experts() {
        let Some(placement) = Placement::new(8, 4) else { panic!("divides") };
        assert_eq!(placement.local_experts(), 2);
        assert_eq!(placement.owner(GlobalExpert(5)), Some((2, LocalExpert(1))));
        assert_eq!(placement.owner(GlobalExpert(8)), None);
        assert_eq!(placement.global(2, LocalExpert(1)), Some(GlobalExpert(5)));
        assert_eq!(placement.global(2, LocalExpert(2)), None);
        assert_eq!(Placement::new(256, 3), None);
        assert_eq!(Placement::new(0, 3), None);
    }
}
