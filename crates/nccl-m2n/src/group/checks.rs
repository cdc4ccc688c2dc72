//! What is wrong with a group as a whole.

use std::ops::Range;
use std::sync::Arc;

use nccl_ext_core::{Error, Result};

use super::Group;
use crate::layout::Layout;
use crate::plan::{Conditions, Grouping, Plan, fusion};
use crate::rules::{self, group};
use crate::settings::CopyAlgorithm;

impl Group<'_> {
    /// What fusing adds to the rules of single calls; every rank finds the same.
    ///
    /// # Errors
    /// With the number of the entry.
    pub(super) fn check_fused(&self) -> Result<(), (usize, Error)> {
        for (_, indices) in self.buckets() {
            let Some(first) = indices.first().and_then(|first| self.entries.get(*first)) else {
                continue;
            };
            let conditions = first.member.conditions;
            if !fuses(&conditions, indices.len()) {
                continue;
            }
            let layouts: Vec<_> = indices.iter().map(|i| self.entries[*i].layouts).collect();
            let bins = fusion::bins(&layouts, &conditions.settings.buckets);
            for bin in &bins {
                let alone = bin.entries.len() == 1;
                let grouping = if alone { Grouping::Only } else { Grouping::Fused };
                let conditions = conditions.grouping(grouping);
                let head = bin.entries.first().map(|head| (*head, is_empty(&layouts[*head])));
                for entry in &bin.entries {
                    let (source, destination) = &layouts[*entry];
                    let plan = Plan::unchecked(source, destination, &conditions);
                    let empty = is_empty(&layouts[*entry]);
                    let first = head.map(|(head, empty)| (indices[head], empty));
                    let facts = group::Facts::fused(empty, first);
                    rules::check(group::RULES, |broken| broken(&facts))
                        .and_then(|()| plan.accepted())
                        .map_err(|error| {
                            let index = indices[*entry];
                            (index, Error::Entry { index, error: Arc::new(error) })
                        })?;
                }
            }
        }
        Ok(())
    }

    /// Entries by what the library fuses, in the order of their first ones.
    fn buckets(&self) -> Vec<((usize, usize, usize), Vec<usize>)> {
        let mut buckets: Vec<((usize, usize, usize), Vec<usize>)> = Vec::new();
        for (i, entry) in self.entries.iter().enumerate() {
            let key = entry.bucket();
            match buckets.iter_mut().find(|(other, _)| *other == key) {
                Some((_, indices)) => indices.push(i),
                None => buckets.push((key, vec![i])),
            }
        }
        buckets
    }

    /// The first entry that this rank alone has something against.
    pub(super) fn own_failure(&self) -> Option<Error> {
        let failed = self
            .entries
            .iter()
            .enumerate()
            .find_map(|(i, entry)| entry.failed.as_ref().map(|error| (i, error.clone())));
        let (index, error) = match (failed, self.alias()) {
            (Some(a), Some(b)) => {
                if a.0 <= b.0 {
                    a
                } else {
                    b
                }
            }
            (a, b) => a.or(b)?,
        };
        Some(Error::Entry { index, error: Arc::new(error) })
    }

    /// Memory that two entries share. Two sources may, where nothing is fused.
    fn alias(&self) -> Option<(usize, Error)> {
        let mut uses: Vec<(&Range<usize>, usize, bool)> = Vec::new();
        for (i, entry) in self.entries.iter().enumerate() {
            let [source, destination] = &entry.tiles;
            uses.extend(source.iter().map(|range| (range, i, false)));
            uses.extend(destination.iter().map(|range| (range, i, true)));
        }
        uses.sort_unstable_by_key(|(range, index, _)| (range.start, *index));
        let mut worst: Option<(usize, usize, Range<usize>)> = None;
        for (at, (range, i, written)) in uses.iter().enumerate() {
            let later = uses[at + 1..].iter().take_while(|(other, ..)| other.start < range.end);
            for (other, j, also_written) in later {
                let shared = other.start..other.end.min(range.end);
                if i != j && (*written || *also_written || self.fused_together(*i, *j)) {
                    let (low, high) = ((*i).min(*j), (*i).max(*j));
                    if worst.as_ref().is_none_or(|(_, worst, _)| high < *worst) {
                        worst = Some((low, high, shared));
                    }
                }
            }
        }
        let (low, high, shared) = worst?;
        let error = group::ALIAS.broken(rules::Violation::new(
            "memory of its own",
            format!("{} byte(s) at {:#x} of entry {low}", shared.len(), shared.start),
        ));
        Some((high, error))
    }

    fn fused_together(&self, i: usize, j: usize) -> bool {
        let (Some(a), Some(b)) = (self.entries.get(i), self.entries.get(j)) else { return false };
        a.bucket() == b.bucket() && fuses(&a.member.conditions, 2)
    }
}

/// Whether the library fuses entries of one bucket at all.
pub(super) fn may_fuse(conditions: &Conditions) -> bool {
    let settings = &conditions.settings;
    settings.copy_algorithm == CopyAlgorithm::Pack && settings.split_comm != Some(true)
}

/// Whether the library fuses so many entries of one bucket (M2N 2.6).
fn fuses(conditions: &Conditions, entries: usize) -> bool {
    may_fuse(conditions) && (2..=group::MOST_ENTRIES).contains(&entries)
}

fn is_empty((source, _): &(Layout, Layout)) -> bool {
    source.local_shape().is_empty()
}
