//! What a rank received, small enough to be compared between processes: a digest of every row.

use std::hash::{DefaultHasher, Hasher};

use nccl_ep::bf16;
use serde::{Deserialize, Serialize};

use crate::oracle::{Arrival, Zones};
use crate::routing::Routing;
use crate::rows;

/// Digests of received rows, zone by zone: an expert's rows, a source rank's, or all of them.
///
/// A row's digest covers its elements and the weights and ids that came with it. The same program
/// makes the same digests in every process; another version of it may not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Received {
    pub(super) zones: Vec<Vec<u64>>,
}

/// The digest of one row.
pub(super) fn digest(row: &[bf16], weights: &[f32], ids: impl Iterator<Item = i64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for four in row.chunks(4) {
        let word = four.iter().fold(0, |word, value| (word << 16) | u64::from(value.to_bits()));
        hasher.write_u64(word);
    }
    weights.iter().for_each(|weight| hasher.write_u32(weight.to_bits()));
    ids.for_each(|id| hasher.write_i64(id));
    hasher.finish()
}

impl Received {
    /// What the oracle says arrives.
    pub(super) fn expected(routing: &Routing, zones: &Zones) -> Self {
        let all: Vec<&Arrival> = zones.iter().flatten().collect();
        let digests = rows::map(rows::threads(), all.len(), routing.sizes.hidden, |row| {
            let Arrival { token, weights, ids } = all[row];
            digest(routing.row(*token), weights, ids.iter().copied())
        });
        let mut digests = digests.into_iter();
        Self {
            zones: zones.iter().map(|zone| digests.by_ref().take(zone.len()).collect()).collect(),
        }
    }

    /// Where two ranks' rows differ. Without an order that is promised, a zone is a multiset.
    pub(super) fn difference(&self, other: &Self, ordered: bool) -> Option<String> {
        if self.zones.len() != other.zones.len() {
            return Some(format!("{} zones instead of {}", self.zones.len(), other.zones.len()));
        }
        self.zones.iter().zip(&other.zones).enumerate().find_map(|(zone, (found, expected))| {
            let (mut found, mut expected) = (found.clone(), expected.clone());
            if !ordered {
                found.sort_unstable();
                expected.sort_unstable();
            }
            if found.len() != expected.len() {
                return Some(format!(
                    "zone {zone} has {} rows instead of {}",
                    found.len(),
                    expected.len()
                ));
            }
            let pairs = found.iter().zip(&expected);
            let different = pairs.clone().filter(|(found, expected)| found != expected).count();
            let first = pairs.clone().position(|(found, expected)| found != expected)?;
            let rows = expected.len();
            Some(if ordered {
                format!("zone {zone}: {different} of {rows} rows differ; the first is row {first}")
            } else {
                format!("zone {zone}: its {rows} rows, in whatever order, are not the same")
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(zones: &[&[u64]]) -> Received {
        Received { zones: zones.iter().map(|zone| zone.to_vec()).collect() }
    }

    #[test]
    fn any_flipped_byte_changes_a_digest() {
        let row: Vec<_> = (0..70_u16).map(bf16::from_bits).collect();
        let (weights, ids) = ([0.25_f32, 0.0], [3_i64, -1]);
        let whole = digest(&row, &weights, ids.into_iter());
        assert_eq!(whole, digest(&row, &weights, ids.into_iter()));
        for at in 0..row.len() {
            for flip in [0x00FF, 0xFF00, 1] {
                let mut other = row.clone();
                other[at] = bf16::from_bits(other[at].to_bits() ^ flip);
                assert_ne!(digest(&other, &weights, ids.into_iter()), whole);
            }
        }
        assert_ne!(digest(&row, &[0.25, -0.0], ids.into_iter()), whole);
        assert_ne!(digest(&row, &weights, [-1, 3].into_iter()), whole);
        assert_ne!(digest(&row[..69], &weights, ids.into_iter()), whole);
    }

    #[test]
    fn order_counts_only_where_it_is_promised() {
        let expected = received(&[&[1, 2, 2], &[]]);
        let other = received(&[&[2, 1, 2], &[]]);
        assert_eq!(other.difference(&expected, false), None);
        assert_eq!(
            other.difference(&expected, true).unwrap(),
            "zone 0: 2 of 3 rows differ; the first is row 0"
        );
        // A multiset counts how often.
        assert_eq!(
            received(&[&[1, 1, 2], &[]]).difference(&expected, false).unwrap(),
            "zone 0: its 3 rows, in whatever order, are not the same"
        );
        assert_eq!(
            received(&[&[1, 2, 2], &[4]]).difference(&expected, false).unwrap(),
            "zone 1 has 1 rows instead of 0"
        );
        assert_eq!(
            received(&[&[1, 2, 2]]).difference(&expected, false).unwrap(),
            "1 zones instead of 2"
        );
    }
}
