//! Which source replica serves which destination replica (M2N 3.3).

use std::ops::Range;

use super::conditions::{Conditions, Grouping};
use crate::layout::Layout;
use crate::settings::{CopyAlgorithm, LoadBalance};
use crate::sharding::Sharding;

/// The mode that a call gets when nothing sets it.
pub(super) fn effective(
    source: &Layout,
    destination: &Layout,
    conditions: &Conditions,
) -> LoadBalance {
    let settings = &conditions.settings;
    let large = conditions.ranks > settings.split_threshold;
    let by_node = splits(conditions) || large;
    let adaptive = if by_node { LoadBalance::NodeAware } else { LoadBalance::Uniform };
    let mode = settings.load_balance.unwrap_or(adaptive);
    let broadcast = source.sharding().is_replicated() && destination.sharding().is_replicated();
    if broadcast && settings.uniform_broadcast.unwrap_or(!large) {
        LoadBalance::Uniform
    } else {
        mode
    }
}

/// Whether the call may use communicators split off by domain.
pub(super) fn splits(conditions: &Conditions) -> bool {
    let settings = &conditions.settings;
    let alone = conditions.grouping == Grouping::Alone;
    let capable = settings.copy_algorithm == CopyAlgorithm::Pack && alone;
    capable && settings.split_comm.unwrap_or(true)
}

/// A mode with the numbers of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Balance {
    mode: LoadBalance,
    sources: usize,
    destinations: usize,
    nodes: Nodes,
}

/// Domains of destination replicas. A replica's is that of the rank that holds its shard 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Nodes {
    first_rank: usize,
    stride: usize,
    anchor: usize,
    size: usize,
}

impl Nodes {
    fn of_rank(&self, rank: usize) -> usize {
        rank.saturating_sub(self.anchor) / self.size
    }

    fn of(&self, replica: usize) -> usize {
        self.of_rank(self.first_rank + replica * self.stride)
    }

    /// The replicas, of so many, on these nodes.
    fn replicas(&self, nodes: Range<usize>, replicas: usize) -> Range<usize> {
        let first_on = |node: usize| {
            let rank = self.anchor.saturating_add(node.saturating_mul(self.size));
            rank.saturating_sub(self.first_rank).div_ceil(self.stride).min(replicas)
        };
        first_on(nodes.start)..first_on(nodes.end)
    }
}

/// Block `i` of `n` items split into `k` contiguous blocks, larger ones first.
pub(super) fn block(n: usize, k: usize, i: usize) -> Range<usize> {
    let start = |i: usize| i * (n / k) + i.min(n % k);
    start(i)..start(i + 1)
}

/// The block that item `item` of `n` lies in.
pub(super) fn block_of(n: usize, k: usize, item: usize) -> usize {
    let (small, larger) = (n / k, n % k);
    let in_larger = larger * (small + 1);
    if item < in_larger { item / (small + 1) } else { larger + (item - in_larger) / small.max(1) }
}

impl Balance {
    pub(crate) fn new(
        mode: LoadBalance,
        source: &Sharding,
        destination: &Sharding,
        domain: usize,
        anchor: usize,
    ) -> Self {
        Self {
            mode,
            sources: source.replicas,
            destinations: destination.replicas,
            nodes: Nodes {
                first_rank: destination.start_rank,
                stride: destination.replica_stride,
                anchor,
                size: domain.max(1),
            },
        }
    }

    pub(crate) fn mode(&self) -> LoadBalance {
        self.mode
    }

    /// The domain that the balance puts a rank in.
    pub(crate) fn node_of_rank(&self, rank: usize) -> usize {
        self.nodes.of_rank(rank)
    }

    /// What the replicas of a shard on one domain cannot exceed.
    pub(crate) fn most_on_a_node(&self) -> usize {
        let Nodes { first_rank, stride, anchor, size } = self.nodes;
        // Ranks before the first domain are counted to it.
        if first_rank < anchor { usize::MAX } else { size.div_ceil(stride.max(1)) }
    }

    fn node_range(&self) -> Range<usize> {
        self.nodes.of(0)..self.nodes.of(self.destinations.saturating_sub(1)) + 1
    }

    /// The destination replicas that a source replica serves.
    pub(crate) fn served_by(&self, source: usize) -> Range<usize> {
        let (s, d) = (self.sources, self.destinations);
        match self.mode {
            LoadBalance::Uniform if s <= d => block(d, s, source),
            LoadBalance::Uniform => {
                let served = block_of(s, d, source);
                if block(s, d, served).start == source { served..served + 1 } else { 0..0 }
            }
            LoadBalance::NodeAware => {
                let nodes = self.node_range();
                let mine = if s >= nodes.len() {
                    (nodes.start + source).min(nodes.end)..(nodes.start + source + 1).min(nodes.end)
                } else {
                    let block = block(nodes.len(), s, source);
                    nodes.start + block.start..nodes.start + block.end
                };
                self.nodes.replicas(mine, d)
            }
        }
    }

    /// The source replica that serves a destination replica.
    pub(crate) fn source_of(&self, destination: usize) -> usize {
        let (s, d) = (self.sources, self.destinations);
        match self.mode {
            LoadBalance::Uniform if s <= d => block_of(d, s, destination),
            LoadBalance::Uniform => block(s, d, destination).start,
            LoadBalance::NodeAware => {
                let nodes = self.node_range();
                let node = self.nodes.of(destination) - nodes.start;
                if s >= nodes.len() { node } else { block_of(nodes.len(), s, node) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement::{Replicate, Shard};
    use crate::{DataType, Mesh};

    fn balance(
        mode: LoadBalance,
        s: usize,
        d: usize,
        start: usize,
        stride: usize,
        domain: usize,
    ) -> Balance {
        let side = |replicas, start_rank, replica_stride| Sharding {
            start_rank,
            dim: 0,
            shards: 1,
            replicas,
            shard_stride: 1,
            replica_stride,
        };
        Balance::new(mode, &side(s, 0, 1), &side(d, start, stride), domain, 0)
    }

    fn sources(balance: &Balance) -> Vec<usize> {
        (0..balance.destinations).map(|replica| balance.source_of(replica)).collect()
    }

    #[test]
    fn both_directions_agree_and_every_destination_is_served() {
        for mode in [LoadBalance::Uniform, LoadBalance::NodeAware] {
            for (s, d) in (1..8).flat_map(|s| (1..12).map(move |d| (s, d))) {
                for (start, stride, domain) in [(8, 1, 100), (3, 1, 2), (5, 3, 4), (8, 2, 1)] {
                    let balance = balance(mode, s, d, start, stride, domain);
                    let mut served = vec![0; d];
                    for source in 0..s {
                        for replica in balance.served_by(source) {
                            served[replica] += 1;
                            assert_eq!(balance.source_of(replica), source);
                        }
                    }
                    assert_eq!(served, vec![1; d], "{balance:?}");
                }
            }
        }
    }

    #[test]
    fn uniform_splits_the_larger_side_into_blocks() {
        let uniform = |s, d| sources(&balance(LoadBalance::Uniform, s, d, 8, 1, 8));
        assert_eq!(uniform(4, 3), [0, 2, 3]);
        assert_eq!(uniform(3, 4), [0, 0, 1, 2]);
        assert_eq!(uniform(2, 2), [0, 1]);
        assert_eq!(uniform(2, 5), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn items_lie_in_their_blocks() {
        for (items, blocks) in [(5, 2), (2, 5), (7, 3), (1, 1), (4, 4), (10, 4)] {
            for item in 0..items {
                let found = block_of(items, blocks, item);
                assert!(block(items, blocks, found).contains(&item), "{items} {blocks} {item}");
            }
        }
        assert_eq!((0..3).map(|i| block(8, 3, i)).collect::<Vec<_>>(), [0..3, 3..6, 6..8]);
    }

    #[test]
    fn by_node_one_source_serves_a_domain() {
        let by_node = |s, d, domain| sources(&balance(LoadBalance::NodeAware, s, d, 4, 1, domain));
        assert_eq!(by_node(4, 4, 100), [0, 0, 0, 0]);
        // Ranks 4 to 9 in domains of 2: nodes 2, 3, 4.
        assert_eq!(by_node(4, 6, 2), [0, 0, 1, 1, 2, 2]);
        assert_eq!(by_node(2, 6, 2), [0, 0, 0, 0, 1, 1]);
        assert_eq!(by_node(1, 6, 2), [0; 6]);
    }

    #[test]
    fn the_mode_adapts_to_call_and_communicator() {
        let layout = |dims: &[usize], start, placements: &[_], shape: &[usize]| {
            Layout::new(Mesh::new(dims, start).unwrap(), placements, shape, DataType::Uint8)
                .unwrap()
        };
        let sharded = layout(&[2], 0, &[Shard(0)], &[2]);
        let copies = layout(&[2], 2, &[Replicate], &[4]);
        let mut conditions = Conditions::one_host(4);
        let mode = |source, conditions: &Conditions| effective(source, &copies, conditions);
        assert_eq!(mode(&sharded, &conditions), LoadBalance::NodeAware);
        assert_eq!(mode(&copies, &conditions), LoadBalance::Uniform);
        conditions.settings.uniform_broadcast = Some(false);
        assert_eq!(mode(&copies, &conditions), LoadBalance::NodeAware);
        conditions.grouping = Grouping::Only;
        assert_eq!(mode(&sharded, &conditions), LoadBalance::Uniform);
        conditions.ranks = 201;
        assert_eq!(mode(&sharded, &conditions), LoadBalance::NodeAware);
        conditions.settings.load_balance = Some(LoadBalance::Uniform);
        assert_eq!(mode(&sharded, &conditions), LoadBalance::Uniform);
        let mut direct = Conditions::one_host(4);
        direct.settings.copy_algorithm = CopyAlgorithm::Direct;
        assert_eq!(mode(&sharded, &direct), LoadBalance::Uniform);
    }
}
