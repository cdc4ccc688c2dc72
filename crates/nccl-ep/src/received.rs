//! Received expert ids, typed.

use nccl_ext_core::Result;

#[cfg(doc)]
use crate::Error;
use crate::enums::ExpertIdKind;
use crate::experts::{GlobalExpert, LocalExpert, Placement};
use crate::rules;
use crate::rules::received::{RULES, ReceivedFacts};

/// An expert of this rank that a received row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceivedExpert {
    /// Index of its id in the row, and of its weight.
    pub choice: usize,
    /// Its number on this rank.
    pub local: LocalExpert,
    /// Its number in the model.
    pub global: GlobalExpert,
}

/// Typed view of received expert ids on the host: hides rows past the count and keeps local and
/// global ids apart.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedExperts<'a, I> {
    ids: &'a [I],
    topk: usize,
    rows: usize,
    rank: usize,
    placement: Placement,
    global: bool,
}

impl<'a, I: Copy + Into<i64>> ReceivedExperts<'a, I> {
    /// `ids` is `[at least rows, topk]` as received by `rank`. `kind` is the numbering that the
    /// dispatch was given, `rows` the number of received rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] for fewer than `rows * topk` ids.
    pub fn new(
        ids: &'a [I],
        topk: usize,
        rows: usize,
        rank: usize,
        placement: Placement,
        kind: ExpertIdKind,
    ) -> Result<Self> {
        let facts = ReceivedFacts { rows, topk, ids: ids.len() };
        rules::check(RULES, |broken| broken(&facts))?;
        let global = kind == ExpertIdKind::Global;
        Ok(Self { ids, topk, rows, rank, placement, global })
    }

    /// Rows that hold a token.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The experts of this rank that a row is for; `None` beyond the count.
    pub fn row(&self, row: usize) -> Option<impl Iterator<Item = ReceivedExpert> + use<'a, I>> {
        if row >= self.rows {
            return None;
        }
        let ids = self.ids.get(row * self.topk..(row + 1) * self.topk)?;
        let Self { rank, placement, global, .. } = *self;
        let experts = ids.iter().enumerate().filter_map(move |(choice, id)| {
            let id = usize::try_from((*id).into()).ok()?;
            let (local, global) = if global {
                let (owner, local) = placement.owner(GlobalExpert(id))?;
                (owner == rank).then_some((local, GlobalExpert(id)))?
            } else {
                (LocalExpert(id), placement.global(rank, LocalExpert(id))?)
            };
            Some(ReceivedExpert { choice, local, global })
        });
        Some(experts)
    }
}
