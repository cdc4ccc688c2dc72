//! Which rank owns which expert.

/// An expert of the whole model, `0..num_experts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalExpert(pub usize);

/// An expert of one rank, `0..local experts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalExpert(pub usize);

/// Experts in contiguous blocks over ranks: rank `r` owns `r * local ..  (r + 1) * local` (EP 0.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    local: usize,
    ranks: usize,
}

impl Placement {
    /// `experts` over `ranks`; `None` unless they divide evenly and there are some.
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
