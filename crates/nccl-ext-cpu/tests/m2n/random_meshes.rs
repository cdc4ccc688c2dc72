//! Random meshes, placements, shapes and types against slices of the global tensor.

use nccl_ext_core::DataType;
use nccl_ext_test::cpu::m2n::*;
use nccl_ext_test::cpu::*;
use proptest::prelude::*;

const MOST_RANKS: usize = 12;

/// A mesh and its placements: extents, the axis that shards, and whether a mesh of one replica is
/// written as one axis.
#[derive(Debug, Clone)]
struct Mesh {
    dims: Vec<i32>,
    placements: Vec<i32>,
}

fn mesh(ndims: usize, most: usize) -> impl Strategy<Value = Mesh> {
    let dim = 0..ndims as i32;
    (1..=most, 1..=most, dim, 0..4_usize).prop_filter_map(
        "too many ranks",
        move |(a, b, d, kind)| {
            let (dims, placements) = match kind {
                0 => (vec![a as i32], vec![d]),
                1 => (vec![a as i32], vec![REPLICATE]),
                2 => (vec![a as i32, b as i32], vec![REPLICATE, d]),
                _ if a % 3 == 0 => (vec![a as i32, b as i32], vec![REPLICATE, REPLICATE]),
                _ => (vec![a as i32, b as i32], vec![d, REPLICATE]),
            };
            let fits = dims.iter().product::<i32>() as usize <= most;
            fits.then_some(Mesh { dims, placements })
        },
    )
}

impl Mesh {
    fn size(&self) -> usize {
        self.dims.iter().product::<i32>() as usize
    }

    fn shards(&self, dim: usize) -> usize {
        let axis = self.placements.iter().position(|&placement| placement == dim as i32);
        axis.map_or(1, |axis| self.dims[axis] as usize)
    }

    fn side(&self, start: usize, global: &[usize]) -> TensorSide {
        let shape = global.iter().enumerate().map(|(dim, n)| n / self.shards(dim)).collect();
        TensorSide {
            dims: self.dims.clone(),
            start: start as i32,
            placements: self.placements.clone(),
            shape,
        }
    }
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    (a..).step_by(a).find(|n| n % b == 0).unwrap()
}

/// A transfer on a communicator of [`MOST_RANKS`] at most, with gaps, in either order.
fn case(smallest: usize) -> impl Strategy<Value = ReshardCase> {
    let meshes = (1..=3_usize).prop_flat_map(|ndims| {
        let half = MOST_RANKS / 2;
        (mesh(ndims, half), mesh(ndims, half), Just(ndims))
    });
    let factors = prop::collection::vec(smallest..=3, 3);
    let gaps = (0..=2_usize, 0..=2_usize, 0..=2_usize);
    let types = 0..12_usize;
    (meshes, factors, gaps, any::<bool>(), types).prop_map(
        |((src, dst, ndims), factors, gaps, reversed, dtype)| {
            let extent =
                |dim: usize| least_common_multiple(src.shards(dim), dst.shards(dim)) * factors[dim];
            let global: Vec<_> = (0..ndims).map(extent).collect();
            let (first, second) = if reversed { (&dst, &src) } else { (&src, &dst) };
            // Gaps as far as there is room for them.
            let room = MOST_RANKS - first.size() - second.size();
            let before = gaps.0.min(room);
            let between = gaps.1.min(room - before);
            let after = gaps.2.min(room - before - between);
            let starts = (before, before + first.size() + between);
            let starts = if reversed { (starts.1, starts.0) } else { starts };
            let dtype = DataType::ALL[dtype];
            ReshardCase {
                ranks: before + first.size() + between + second.size() + after,
                dtype: dtype.as_raw(),
                element: dtype.size(),
                src: src.side(starts.0, &global),
                dst: dst.side(starts.1, &global),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Tiles are slices, and neither the sources nor a byte around the tiles change.
    #[test]
    fn a_reshard_slices_the_global_tensor(case in case(0)) {
        both_ways(case.ranks, |comm| case.run(comm));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// A group does what its calls do one by one.
    #[test]
    fn a_group_does_what_single_calls_do(mut cases in prop::collection::vec(case(1), 1..6)) {
        let count = cases.iter().map(|case| case.ranks).max().unwrap();
        cases.push(cases[0].clone());
        both_ways(count, |comm| {
            let rank = comm.rank();
            let fresh = |case: &ReshardCase| case.pattern_tiles(rank);
            let mut tiles: Vec<_> = cases.iter().map(fresh).collect();
            group_start();
            for (case, tiles) in cases.iter().zip(&mut tiles) {
                assert_ok(case.call(comm, tiles));
                let untouched = |tile: &CanaryTile| tile.data().iter().all(|&byte| byte == CANARY);
                assert!(tiles.dst.as_ref().is_none_or(untouched), "executed while recording");
            }
            assert_ok(group_end());
            for (case, tiles) in cases.iter().zip(&tiles) {
                case.check(rank, tiles);
            }
        });
    }
}
