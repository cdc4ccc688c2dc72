//! Which entries of a group become one submission (M2N 4.3).

use crate::layout::Layout;
use crate::settings::{Buckets, SMALLEST_REQUEST};

/// A bin of a fused group: entries of one topology that fit a staging slot together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bin {
    /// The entries' numbers.
    pub(crate) entries: Vec<usize>,
    source_bytes: usize,
    destination_bytes: usize,
}

impl Bin {
    fn holds(&self, source: usize, destination: usize, budget: usize) -> bool {
        let source = self.source_bytes.saturating_add(source);
        let destination = self.destination_bytes.saturating_add(destination);
        source.max(destination).max(SMALLEST_REQUEST) <= budget
    }
}

/// First fit, in the order of recording.
pub(crate) fn bins(entries: &[(Layout, Layout)], buckets: &Buckets) -> Vec<Bin> {
    let bytes = |(source, destination): &(Layout, Layout)| {
        (source.local_bytes(), destination.local_bytes())
    };
    let largest = entries.iter().map(|entry| bytes(entry).0.max(bytes(entry).1)).max();
    let budget = buckets.budget(largest.unwrap_or(0).max(SMALLEST_REQUEST));
    let mut bins: Vec<Bin> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let (source, destination) = bytes(entry);
        let fits = |bin: &&mut Bin| {
            let first = bin.entries.first().and_then(|first| entries.get(*first));
            first.is_some_and(|first| same_topology(first, entry))
                && bin.holds(source, destination, budget)
        };
        match bins.iter_mut().find(fits) {
            Some(bin) => {
                bin.entries.push(i);
                bin.source_bytes += source;
                bin.destination_bytes += destination;
            }
            None => bins.push(Bin {
                entries: vec![i],
                source_bytes: source,
                destination_bytes: destination,
            }),
        }
    }
    bins
}

/// Types and shapes may differ.
fn same_topology(a: &(Layout, Layout), b: &(Layout, Layout)) -> bool {
    a.0.sharding() == b.0.sharding() && a.1.sharding() == b.1.sharding()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement::{Replicate, Shard};
    use crate::{DataType, Mesh, Placement};

    fn entry(placement: Placement, bytes: usize) -> (Layout, Layout) {
        let mesh = |start| Mesh::new(&[2], start).unwrap();
        let source = Layout::from_global(mesh(0), &[placement], &[bytes], DataType::Int8).unwrap();
        (source, source.on(mesh(2), &[Replicate]).unwrap())
    }

    fn fused(entries: &[(Layout, Layout)], buckets: &str) -> Vec<Vec<usize>> {
        let bins = bins(entries, &Buckets::parse(buckets).unwrap());
        bins.into_iter().map(|bin| bin.entries).collect()
    }

    #[test]
    fn entries_of_one_topology_share_a_slot_while_they_fit() {
        let (a, b) = (entry(Shard(0), 2048), entry(Replicate, 2048));
        assert_eq!(fused(&[a, b, a, b], "4k"), [vec![0, 2], vec![1, 3]]);
        assert_eq!(fused(&[a, a, a], "4k"), [vec![0, 1], vec![2]]);
        // The smallest bucket that holds the largest entry is the budget.
        assert_eq!(fused(&[a, a, a], "2k,8k"), [vec![0], vec![1], vec![2]]);
        let large = entry(Shard(0), 6000);
        assert_eq!(fused(&[large, a, a], "2k,8k"), [vec![0, 1], vec![2]]);
        let empty = entry(Shard(0), 0);
        assert_eq!(fused(&[empty, empty], "2k"), [vec![0, 1]]);
    }
}
