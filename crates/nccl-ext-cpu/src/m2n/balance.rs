//! Which replica of the source feeds which replica of the destination (M2N 3.3).

use super::environment::{CopyAlgorithm, Environment};
use super::transfer::{Layout, Side};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Balance {
    /// Evenly, in blocks.
    Uniform,
    /// By the node of the destination. Here all ranks are one node, which the first replica feeds.
    NodeAware,
}

/// The mode of one call. `fused` says whether it is in a fused bucket of a group.
pub(super) fn mode(
    environment: &Environment,
    layout: &Layout,
    ranks: usize,
    fused: bool,
) -> Balance {
    let large = ranks > environment.large_above;
    let capable = environment.algorithm == CopyAlgorithm::Pack && !fused;
    let split = environment.split_comm.unwrap_or(capable);
    let by_node = (capable && split) || large;
    let mode =
        environment.balance.unwrap_or(if by_node { Balance::NodeAware } else { Balance::Uniform });
    let broadcast_uniformly = environment.uniform_broadcast.unwrap_or(!large);
    let is_broadcast = layout.src.shards() == 1 && layout.dst.shards() == 1;
    if broadcast_uniformly && is_broadcast { Balance::Uniform } else { mode }
}

/// Where block `index` begins when `items` are split over `blocks`, larger blocks first.
fn block_begin(items: usize, blocks: usize, index: usize) -> usize {
    index * (items / blocks) + index.min(items % blocks)
}

/// The source replica that feeds destination replica `replica`.
pub(super) fn source_replica(mode: Balance, src: &Side, dst: &Side, replica: usize) -> usize {
    let (sources, destinations) = (src.replicas(), dst.replicas());
    match mode {
        Balance::NodeAware => 0,
        Balance::Uniform if sources >= destinations => block_begin(sources, destinations, replica),
        Balance::Uniform => {
            let ends_after =
                |block: &usize| block_begin(destinations, sources, block + 1) > replica;
            (0..sources).find(ends_after).unwrap_or(0)
        }
    }
}

/// The most destination replicas that one source replica feeds.
pub(super) fn most_fed(mode: Balance, src: &Side, dst: &Side) -> usize {
    match mode {
        Balance::NodeAware => dst.replicas(),
        Balance::Uniform => dst.replicas().div_ceil(src.replicas()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(replicas: usize) -> Side {
        Side { start: 0, dims: [replicas, 1], shard_axis: 1, shard_dim: 0, shape: [1, 0, 0] }
    }

    fn sources(mode: Balance, sources: usize, destinations: usize) -> Vec<usize> {
        let (src, dst) = (side(sources), side(destinations));
        (0..destinations).map(|replica| source_replica(mode, &src, &dst, replica)).collect()
    }

    #[test]
    fn uniform_splits_the_larger_side() {
        assert_eq!(sources(Balance::Uniform, 4, 3), [0, 2, 3]);
        assert_eq!(sources(Balance::Uniform, 3, 4), [0, 0, 1, 2]);
        assert_eq!(sources(Balance::Uniform, 4, 4), [0, 1, 2, 3]);
        assert_eq!(sources(Balance::Uniform, 5, 2), [0, 3]);
        assert_eq!(sources(Balance::Uniform, 2, 5), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn one_node_is_fed_by_one_replica() {
        assert_eq!(sources(Balance::NodeAware, 4, 3), [0, 0, 0]);
    }

    #[test]
    fn the_mode_adapts() {
        let environment = Environment::default();
        let sharded = Side { dims: [2, 2], ..side(2) };
        let layout = |src, dst| Layout { src, dst, ndims: 1, dtype: nccl_ext_core::DataType::Int8 };
        let (broadcast, shards) = (layout(side(2), side(2)), layout(sharded, sharded));
        assert_eq!(mode(&environment, &shards, 8, false), Balance::NodeAware);
        assert_eq!(mode(&environment, &shards, 8, true), Balance::Uniform);
        assert_eq!(mode(&environment, &broadcast, 8, false), Balance::Uniform);
        assert_eq!(mode(&environment, &shards, 201, true), Balance::NodeAware);
        assert_eq!(mode(&environment, &broadcast, 201, false), Balance::NodeAware);
        let staged = Environment { algorithm: CopyAlgorithm::Direct, ..Environment::default() };
        assert_eq!(mode(&staged, &shards, 8, false), Balance::Uniform);
        let told = Environment {
            balance: Some(Balance::NodeAware),
            uniform_broadcast: Some(false),
            ..Environment::default()
        };
        assert_eq!(mode(&told, &broadcast, 8, true), Balance::NodeAware);
    }
}
