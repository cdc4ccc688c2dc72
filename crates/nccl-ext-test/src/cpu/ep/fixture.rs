//! Routings with the values of their tokens (EP 9.0).

use nccl_ep_sys::{ncclEpAlgorithm_t, ncclEpGroupConfig_t};
use nccl_ext_core::bf16;

use super::{HIGH_THROUGHPUT, TestTensor, group_config, int64_ids, uniform_rows};
use crate::routing;

/// A routing with the values of its tokens.
#[derive(Debug, Clone, Copy)]
pub struct Fixture {
    pub ranks: usize,
    pub experts: usize,
    pub max_tokens: usize,
    pub topk: usize,
    /// Expert ids of a rank, `topk` for each of its tokens.
    pub ids: fn(usize) -> Vec<i64>,
    /// Values of a rank's tokens.
    pub values: fn(usize) -> Vec<f32>,
    /// Weights of each entry; by position `k` for the token's value `v`.
    pub weight: fn(f32, usize) -> f32,
    pub max_recv: usize,
}

/// F4: token `i` of rank `r` goes to expert `(4r+i) mod 8`, value `4r+i+1`.
pub const F4: Fixture = Fixture {
    ranks: 4,
    experts: 8,
    max_tokens: 4,
    topk: 1,
    ids: |r| (0..4).map(|i| (4 * r as i64 + i) % 8).collect(),
    values: |r| (0..4).map(|i| (4 * r + i + 1) as f32).collect(),
    weight: |_, _| 1.0,
    max_recv: 32,
};

/// F4K2: as F4 with two experts a token.
pub const F4K2: Fixture = Fixture { topk: 2, ids: |_| vec![0, 1, 2, 3, 4, 6, 5, 7], ..F4 };

/// G2: two ranks, four experts, a duplicate and a token without experts.
pub const G2: Fixture = Fixture {
    ranks: 2,
    experts: 4,
    max_tokens: 4,
    topk: 2,
    ids: |r| routing::G2::IDS[r].to_vec(),
    values: |r| (0..4).map(|token| routing::G2::value(r, token)).collect(),
    weight: |v, k| v + k as f32 / 4.0,
    max_recv: 16,
};

impl Fixture {
    /// Experts of a rank.
    pub fn local_experts(&self) -> usize {
        self.experts / self.ranks
    }

    pub fn config(&self, algorithm: ncclEpAlgorithm_t, hidden: usize) -> ncclEpGroupConfig_t {
        let budget = if algorithm == HIGH_THROUGHPUT { self.max_recv as u32 } else { 0 };
        ncclEpGroupConfig_t {
            num_experts: self.experts as u32,
            max_dispatch_tokens_per_rank: self.max_tokens as u32,
            max_recv_tokens_per_rank: budget,
            max_token_bytes: 2 * hidden as u32,
            ..group_config(algorithm)
        }
    }

    pub fn ids(&self, rank: usize) -> TestTensor<i64> {
        int64_ids(self.topk, &(self.ids)(rank))
    }

    pub fn tokens(&self, rank: usize, hidden: usize) -> TestTensor<bf16> {
        let values = (self.values)(rank);
        TestTensor::new(&[values.len(), hidden], uniform_rows(&values, hidden))
    }

    pub fn weights(&self, rank: usize) -> TestTensor<f32> {
        let values = (self.values)(rank);
        let weights = |v: &f32| (0..self.topk).map(|k| (self.weight)(*v, k)).collect::<Vec<_>>();
        TestTensor::new(&[values.len(), self.topk], values.iter().flat_map(weights).collect())
    }
}
