//! Rules of what routing indices say, for [`Validation::Data`](crate::Validation::Data).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

use crate::geometry::{EmMode, Geometry};
use crate::mode::Mode;

/// Routing indices on the host, `[tokens, top-k]`.
#[derive(Clone, Copy)]
pub(crate) struct Ids<'a> {
    /// Native-endian integers, not necessarily aligned.
    pub(crate) bytes: &'a [u8],
    /// Whether they are 64 bits wide, else 32.
    pub(crate) wide: bool,
}

impl<'a> Ids<'a> {
    fn iter(self) -> impl Iterator<Item = i64> + 'a {
        self.bytes.chunks_exact(if self.wide { 8 } else { 4 }).map(|id| match *id {
            [a, b, c, d] => i32::from_ne_bytes([a, b, c, d]).into(),
            [a, b, c, d, e, f, g, h] => i64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => -1,
        })
    }
}

/// The ids of an update.
pub(crate) struct DataFacts<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) mode: Mode,
    pub(crate) topk: usize,
    pub(crate) ids: Ids<'a>,
}

/// An id and where it stands.
struct FoundId {
    index: usize,
    id: i64,
    topk: usize,
}

impl std::fmt::Display for FoundId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (token, choice) = (self.index / self.topk, self.index % self.topk);
        write!(f, "{} as choice {choice} of token {token}", self.id)
    }
}

impl DataFacts<'_> {
    fn ll(&self) -> bool {
        self.mode.is_low_latency()
    }

    fn first(&self, wrong: impl Fn(i64) -> bool) -> Option<FoundId> {
        let topk = self.topk.max(1);
        let found = self.ids.iter().enumerate().find(|(_, id)| wrong(*id));
        found.map(|(index, id)| FoundId { index, id, topk })
    }

    fn experts(&self) -> i64 {
        i64::try_from(self.geometry.experts).unwrap_or(i64::MAX)
    }

    fn too_large(&self) -> Option<FoundId> {
        self.first(|id| id >= self.experts())
    }

    /// The first id that stands earlier in its row too. Rows are short, so pairs are compared.
    fn repeated(&self) -> Option<FoundId> {
        let topk = self.topk.max(1);
        let width = if self.ids.wide { 8 } else { 4 };
        let rows = self.ids.bytes.chunks_exact(topk * width).enumerate();
        for (token, row) in rows {
            let row = Ids { bytes: row, wide: self.ids.wide };
            for (choice, id) in row.iter().enumerate() {
                if id >= 0 && row.iter().take(choice).any(|earlier| earlier == id) {
                    return Some(FoundId { index: token * topk + choice, id, topk });
                }
            }
        }
        None
    }

    /// The first token with more than eight different experts on one rank.
    fn crowded(&self) -> Option<usize> {
        let local = i64::try_from(self.geometry.local_experts).unwrap_or(i64::MAX).max(1);
        let width = if self.ids.wide { 8 } else { 4 };
        let rows = self.ids.bytes.chunks_exact(self.topk.max(1) * width);
        rows.enumerate().find_map(|(token, row)| {
            let row = Ids { bytes: row, wide: self.ids.wide };
            let new = |choice: usize, id: i64| row.iter().take(choice).all(|seen| seen != id);
            let crowded = row.iter().any(|id| {
                let same_rank = row.iter().enumerate().filter(|(choice, other)| {
                    *other >= 0 && *other / local == id / local && new(*choice, *other)
                });
                id >= 0 && same_rank.count() > 8
            });
            crowded.then_some(token)
        })
    }
}

fn shown(at: Option<FoundId>) -> String {
    at.map_or_else(String::new, |at| at.to_string())
}

rules! {
    /// Checked by update, after its other rules, when the group validates data.
    DATA over DataFacts {
        "data.expert-exists" on "topk_idx": "an id is an expert of the model, or negative for none"
            ("EP 2.6", Local)
            |f| f.too_large().is_some()
                => (format!("ids below {}", f.experts()), shown(f.too_large()));
        "data.ll-em-twice" on "topk_idx":
            "low-latency expert-major has room for each expert once a token" ("EP 4.2", Local)
            |f| f.mode == Mode::LowLatencyExpertMajor && f.repeated().is_some()
                => ("different experts in a row", shown(f.repeated()));
        "data.ht-twice" on "topk_idx":
            "high throughput sends a token once to each of its experts, with one of the weights"
            ("EP 4.16", Local)
            |f| !f.ll() && f.repeated().is_some()
                => ("different experts in a row", shown(f.repeated()));
        "data.em-crowded" on "topk_idx":
            "the duplicating expert-major mode adds up at most 8 experts of a token on one rank"
            ("EP 4.8.1", Local)
            |f| f.mode == Mode::HighThroughputExpertMajor && f.geometry.em_mode == EmMode::LocalDup
                && f.crowded().is_some()
                => ("at most 8 experts of one rank in a row",
                    format!("more for token {}", f.crowded().unwrap_or(0)));
    }
}
