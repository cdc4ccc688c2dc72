//! Where one rank's tokens go (EP 3.5.3).

use crate::ep::slots::zeros;

/// One token on its way to one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) rank: u32,
    /// Its copies: `first..first + count` of [`Routes::copies`].
    pub(super) first: u32,
    pub(super) count: u32,
}

/// One token on its way to one expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Copy {
    /// The global expert.
    pub(super) expert: u32,
    /// The first position in the token's top-k list that names it.
    pub(super) k: u32,
}

/// Where one rank's tokens go. Duplicate experts of a token collapse.
#[derive(Debug, Default)]
pub(super) struct Routes {
    pub(super) local_experts: usize,
    /// Rows of token `t`: `token_rows[t]..token_rows[t + 1]`.
    token_rows: Vec<u32>,
    /// By token, then destination.
    pub(super) rows: Vec<Row>,
    /// By token, then expert.
    copies: Vec<Copy>,
    /// Rows for each rank, copies for each expert.
    pub(super) per_rank: Vec<u32>,
    pub(super) per_expert: Vec<u32>,
    /// Most copies of one row.
    pub(super) widest: u32,
}

impl Routes {
    /// Sorts out `ids`, `topk` a token; negative ids are no expert.
    ///
    /// Every id is below `ranks * local_experts`.
    pub(super) fn build(
        &mut self,
        ids: impl ExactSizeIterator<Item = i64>,
        topk: usize,
        ranks: usize,
        local_experts: usize,
    ) {
        self.local_experts = local_experts;
        self.widest = 0;
        self.token_rows.clear();
        self.rows.clear();
        self.copies.clear();
        zeros(&mut self.per_rank, ranks);
        zeros(&mut self.per_expert, ranks * local_experts);
        self.token_rows.reserve(ids.len() / topk.max(1) + 1);
        self.rows.reserve(ids.len());
        self.copies.reserve(ids.len());
        self.token_rows.push(0);
        let mut begin = 0;
        for (i, id) in ids.enumerate() {
            let k = i % topk;
            if let Ok(expert) = u32::try_from(id) {
                self.insert(begin, Copy { expert, k: k as u32 });
            }
            if k + 1 == topk {
                self.close_token(begin);
                begin = self.copies.len();
            }
        }
    }

    /// Keeps the copies of the token sorted by expert, each expert once.
    fn insert(&mut self, begin: usize, copy: Copy) {
        let token = &self.copies[begin..];
        let place = token.partition_point(|other| other.expert < copy.expert);
        if token.get(place).is_none_or(|other| other.expert != copy.expert) {
            self.copies.insert(begin + place, copy);
        }
    }

    fn close_token(&mut self, begin: usize) {
        for (i, copy) in self.copies.iter().enumerate().skip(begin) {
            self.per_expert[copy.expert as usize] += 1;
            let rank = copy.expert / self.local_experts as u32;
            match self.rows.last_mut() {
                Some(row) if row.rank == rank && row.first as usize >= begin => row.count += 1,
                _ => {
                    self.rows.push(Row { rank, first: i as u32, count: 1 });
                    self.per_rank[rank as usize] += 1;
                }
            }
            let count = self.rows.last().map_or(0, |row| row.count);
            self.widest = self.widest.max(count);
        }
        self.token_rows.push(self.rows.len() as u32);
    }

    pub(super) fn tokens(&self) -> usize {
        self.token_rows.len().saturating_sub(1)
    }

    /// Indices of the rows of a token.
    pub(super) fn rows_of(&self, token: usize) -> std::ops::Range<usize> {
        self.token_rows[token] as usize..self.token_rows[token + 1] as usize
    }

    pub(super) fn row(&self, index: usize) -> Row {
        self.rows[index]
    }

    pub(super) fn copies_of(&self, row: Row) -> &[Copy] {
        &self.copies[row.first as usize..][..row.count as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(ids: &[[i64; 2]], ranks: usize, local: usize) -> Routes {
        let mut routes = Routes::default();
        routes.build(ids.as_flattened().iter().copied(), 2, ranks, local);
        routes
    }

    #[test]
    fn duplicates_collapse_to_their_first_position() {
        let routes = routes(&[[3, 3], [-5, 0]], 2, 2);
        assert_eq!(routes.tokens(), 2);
        let row = routes.row(routes.rows_of(0).start);
        assert_eq!(routes.copies_of(row), [Copy { expert: 3, k: 0 }]);
        assert_eq!(routes.copies_of(routes.row(1)), [Copy { expert: 0, k: 1 }]);
    }

    #[test]
    fn copies_of_a_token_ascend_and_rows_group_them_by_rank() {
        let routes = routes(&[[3, 1], [1, 0]], 2, 2);
        assert_eq!(routes.rows_of(0), 0..2);
        assert_eq!(routes.rows_of(1), 2..3);
        assert_eq!(routes.row(2), Row { rank: 0, first: 2, count: 2 });
        assert_eq!(routes.widest, 2);
    }
}
