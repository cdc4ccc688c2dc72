//! Which replica of the source feeds which replica of the destination (M2N 3.3).

use crate::m2n::descriptor::{Layout, Side};
use crate::m2n::environment::{CopyAlgorithm, Environment, LoadBalance};

/// The balance of one call. `fused` says whether it is in a fused bucket of a group.
pub(crate) fn load_balance(
    environment: &Environment,
    layout: &Layout,
    ranks: usize,
    fused: bool,
) -> LoadBalance {
    let large = ranks > environment.large_above;
    let capable = environment.algorithm == CopyAlgorithm::Pack && !fused;
    let split = environment.split_comm.unwrap_or(capable);
    let by_node = (capable && split) || large;
    let mode = environment.balance.unwrap_or(if by_node {
        LoadBalance::NodeAware
    } else {
        LoadBalance::Uniform
    });
    let broadcast_uniformly = environment.uniform_broadcast.unwrap_or(!large);
    let is_broadcast = layout.src.shards() == 1 && layout.dst.shards() == 1;
    if broadcast_uniformly && is_broadcast { LoadBalance::Uniform } else { mode }
}

/// Where block `index` begins when `items` are split over `blocks`, larger blocks first.
fn block_begin(items: usize, blocks: usize, index: usize) -> usize {
    index * (items / blocks) + index.min(items % blocks)
}

/// The source replica that feeds destination replica `replica`.
pub(crate) fn source_replica(mode: LoadBalance, src: &Side, dst: &Side, replica: usize) -> usize {
    let (sources, destinations) = (src.replicas(), dst.replicas());
    match mode {
        LoadBalance::NodeAware => 0,
        LoadBalance::Uniform if sources >= destinations => {
            block_begin(sources, destinations, replica)
        }
        LoadBalance::Uniform => {
            let ends_after =
                |block: &usize| block_begin(destinations, sources, block + 1) > replica;
            (0..sources).find(ends_after).unwrap_or(0)
        }
    }
}

/// The most destination replicas that one source replica feeds.
pub(crate) fn most_fed(mode: LoadBalance, src: &Side, dst: &Side) -> usize {
    match mode {
        LoadBalance::NodeAware => dst.replicas(),
        LoadBalance::Uniform => dst.replicas().div_ceil(src.replicas()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(replicas: usize) -> Side {
        Side { start: 0, dims: [replicas, 1], shard_axis: 1, shard_dim: 0, shape: [1, 0, 0] }
    }

    fn sources(mode: LoadBalance, sources: usize, destinations: usize) -> Vec<usize> {
        let (src, dst) = (side(sources), side(destinations));
        (0..destinations).map(|replica| source_replica(mode, &src, &dst, replica)).collect()
    }

    #[test]
    fn uniform_splits_the_larger_side() {
        assert_eq!(sources(LoadBalance::Uniform, 4, 3), [0, 2, 3]);
        assert_eq!(sources(LoadBalance::Uniform, 3, 4), [0, 0, 1, 2]);
        assert_eq!(sources(LoadBalance::Uniform, 4, 4), [0, 1, 2, 3]);
        assert_eq!(sources(LoadBalance::Uniform, 5, 2), [0, 3]);
        assert_eq!(sources(LoadBalance::Uniform, 2, 5), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn one_node_is_fed_by_one_replica() {
        assert_eq!(sources(LoadBalance::NodeAware, 4, 3), [0, 0, 0]);
    }

    #[test]
    fn the_balance_adapts() {
        let environment = Environment::default();
        let sharded = Side { dims: [2, 2], ..side(2) };
        let layout = |src, dst| Layout { src, dst, ndims: 1, dtype: nccl_ext_core::DataType::Int8 };
        let (broadcast, shards) = (layout(side(2), side(2)), layout(sharded, sharded));
        assert_eq!(load_balance(&environment, &shards, 8, false), LoadBalance::NodeAware);
        assert_eq!(load_balance(&environment, &shards, 8, true), LoadBalance::Uniform);
        assert_eq!(load_balance(&environment, &broadcast, 8, false), LoadBalance::Uniform);
        assert_eq!(load_balance(&environment, &shards, 201, true), LoadBalance::NodeAware);
        assert_eq!(load_balance(&environment, &broadcast, 201, false), LoadBalance::NodeAware);
        let staged = Environment { algorithm: CopyAlgorithm::Direct, ..Environment::default() };
        assert_eq!(load_balance(&staged, &shards, 8, false), LoadBalance::Uniform);
        let told = Environment {
            balance: Some(LoadBalance::NodeAware),
            uniform_broadcast: Some(false),
            ..Environment::default()
        };
        assert_eq!(load_balance(&told, &broadcast, 8, true), LoadBalance::NodeAware);
    }
}
