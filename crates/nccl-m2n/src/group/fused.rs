//! What fusing entries adds to the rules of single calls.

use nccl_ext_core::Error;
use nccl_ext_core::rules::check;

use super::Group;
use super::entry::{FusionKey, entry_error, fuses};
use crate::plan::{Grouping, Plan, fusion};
use crate::rules::group::{self, FusedFacts};

impl Group<'_> {
    /// Checks what the library will fuse; every rank finds the same.
    ///
    /// # Errors
    /// With the number of the entry.
    pub(super) fn check_fused(&self) -> Result<(), (usize, Error)> {
        for indices in self.by_fusion_key() {
            let Some(first) = indices.first().and_then(|first| self.entries.get(*first)) else {
                continue;
            };
            let conditions = first.conditions();
            if !fuses(conditions, indices.len()) {
                continue;
            }
            let layouts: Vec<_> = indices.iter().map(|i| self.entries[*i].layouts).collect();
            for bin in fusion::bins(&layouts, &conditions.settings.buckets) {
                let only = bin.entries.len() == 1;
                let grouping = if only { Grouping::Only } else { Grouping::Fused };
                let conditions = conditions.grouping(grouping);
                let head = bin.entries.first().copied().unwrap_or(0);
                let head_shape = layouts[head].0.local_shape();
                for entry in &bin.entries {
                    let (source, destination) = &layouts[*entry];
                    let plan = Plan::unchecked(source, destination, &conditions);
                    let facts = FusedFacts {
                        local_shape: &source.local_shape(),
                        first: (indices[head], &head_shape),
                    };
                    let index = indices[*entry];
                    check(group::FUSED, |broken| broken(&facts))
                        .and_then(|()| plan.accepted())
                        .map_err(|error| (index, entry_error(index, error)))?;
                }
            }
        }
        Ok(())
    }

    /// Numbers of entries that may be fused, in the order of their first ones.
    fn by_fusion_key(&self) -> Vec<Vec<usize>> {
        let mut lists: Vec<(FusionKey, Vec<usize>)> = Vec::new();
        for (i, entry) in self.entries.iter().enumerate() {
            let key = entry.fusion_key();
            match lists.iter_mut().find(|(other, _)| *other == key) {
                Some((_, indices)) => indices.push(i),
                None => lists.push((key, vec![i])),
            }
        }
        lists.into_iter().map(|(_, indices)| indices).collect()
    }
}
