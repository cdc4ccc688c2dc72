//! Random routings against a second implementation of the model (EP 3.5.3, 4.2 to 4.4, 4.6 to
//! 4.8), written from the text and as simply as possible: it enumerates all pairs of token and
//! expert and shares nothing with the backend.

mod high_throughput;
mod low_latency;

use nccl_ep_sys::{ncclEpAlgorithm_t, ncclEpGroupConfig_t, ncclEpLayout_t};
use nccl_ext_core::{Comm, bf16};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use proptest::prelude::*;

/// A routing of all ranks.
#[derive(Debug, Clone)]
struct Routing {
    ranks: usize,
    local: usize,
    topk: usize,
    /// By rank, token and position.
    ids: Vec<Vec<Vec<i64>>>,
    alignment: usize,
    seed: u64,
}

/// Most tokens a rank dispatches.
const MOST: usize = 64;

fn routing() -> impl Strategy<Value = Routing> {
    let shape = (1..=8_usize, 1..=3_usize, 1..=5_usize, 0..=4_u32, any::<u64>(), 0..=2_u8);
    shape.prop_flat_map(|(ranks, local, topk, shift, seed, pointer_offset)| {
        // The vendor's kernels want a multiple of four experts in all.
        let local = if (ranks * local) % 4 == 0 { local } else { 4 };
        let experts = (ranks * local) as i64;
        let hot = (experts / 4).max(1);
        let id = match pointer_offset {
            0 => (-1..experts).boxed(),
            1 => prop_oneof![4 => 0..hot, 1 => -1..experts].boxed(),
            _ => prop_oneof![1 => Just(-1), 1 => -1..experts].boxed(),
        };
        let token = prop::collection::vec(id, topk);
        let tokens = prop_oneof![Just(0_usize), 0..=MOST, 0..=6_usize]
            .prop_flat_map(move |n| prop::collection::vec(token.clone(), n));
        let alignment = if shift == 0 { 0 } else { 1 << shift };
        prop::collection::vec(tokens, ranks).prop_map(move |ids| Routing {
            ranks,
            local,
            topk,
            ids,
            alignment,
            seed,
        })
    })
}

impl Routing {
    fn run(&self, layout: ncclEpLayout_t, check: fn(&Comm, &Self, ncclEpLayout_t)) {
        both_ways(self.ranks, |comm| check(comm, self, layout));
    }

    fn experts(&self) -> usize {
        self.ranks * self.local
    }

    /// A value that tells (rank, token) pairs apart and is exact in BF16.
    fn value(&self, rank: usize, token: usize) -> f32 {
        let id = (rank * MOST + token) as u64;
        let mixed = (id + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ self.seed) >> 40;
        let mantissa = 128 + (mixed % 128) as i32;
        let exponent = (mixed / 128 % 8) as i32 - 4;
        let sign = if (mixed / 1024).is_multiple_of(2) { 1.0 } else { -1.0 };
        sign * mantissa as f32 * 2.0_f32.powi(exponent)
    }

    fn weight(&self, rank: usize, token: usize, k: usize) -> f32 {
        1.0 / (1.0 + (rank * 31 + token * 7 + k * 3) as f32)
    }

    fn tokens(&self, rank: usize) -> TestTensor<bf16> {
        let values: Vec<_> = (0..self.ids[rank].len()).map(|t| self.value(rank, t)).collect();
        TestTensor::new(&[values.len(), HT_HIDDEN], uniform_rows(&values, HT_HIDDEN))
    }

    fn weights(&self, rank: usize) -> TestTensor<f32> {
        let entries = (0..self.ids[rank].len()).flat_map(|t| (0..self.topk).map(move |k| (t, k)));
        let weights = entries.map(|(t, k)| self.weight(rank, t, k)).collect();
        TestTensor::new(&[self.ids[rank].len(), self.topk], weights)
    }

    fn topk(&self, rank: usize) -> TestTensor<i64> {
        int64_ids(self.topk, &self.ids[rank].concat())
    }

    /// All tokens, in the global order.
    fn all(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.ranks).flat_map(|s| (0..self.ids[s].len()).map(move |t| (s, t)))
    }

    /// The first position at which a token names an expert.
    fn position(&self, (s, t): (usize, usize), expert: usize) -> Option<usize> {
        self.ids[s][t].iter().position(|&id| id == expert as i64)
    }

    fn names(&self, token: (usize, usize), expert: usize) -> bool {
        self.position(token, expert).is_some()
    }

    fn owned(&self, rank: usize) -> std::ops::Range<usize> {
        rank * self.local..(rank + 1) * self.local
    }

    /// FLAT: the tokens that a rank receives, in order.
    fn flat(&self, rank: usize) -> Vec<(usize, usize)> {
        self.all().filter(|&token| self.owned(rank).any(|e| self.names(token, e))).collect()
    }

    /// Expert-major: what is in each slot of a rank; `None` is padding.
    fn zones(&self, rank: usize) -> Vec<Option<((usize, usize), usize)>> {
        let mut slots = Vec::new();
        for expert in self.owned(rank) {
            let tokens: Vec<_> = self.all().filter(|&t| self.names(t, expert)).collect();
            let begin = slots.len();
            slots.extend(tokens.into_iter().map(|token| Some((token, expert))));
            while self.alignment > 1 && (slots.len() - begin) % self.alignment != 0 {
                slots.push(None);
            }
        }
        slots
    }

    fn config(&self, algorithm: ncclEpAlgorithm_t, hidden: usize) -> ncclEpGroupConfig_t {
        ncclEpGroupConfig_t {
            num_experts: self.experts() as u32,
            max_dispatch_tokens_per_rank: MOST as u32,
            max_token_bytes: 2 * hidden as u32,
            num_topk: self.topk.min(self.experts()) as u32,
            ..group_config(algorithm)
        }
    }
}

fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

/// What a receiver gives back for a row: something that depends on the slot, so that rows that
/// are mixed up show.
fn answer(rank: usize, slot: usize) -> f32 {
    round(1.0 + 0.37 * slot as f32 + 3.1 * rank as f32)
}

/// Every copy that was sent is received once: the counts of all ranks add up.
fn assert_copies_are_conserved(routing: &Routing) {
    let sent: usize = routing
        .all()
        .map(|token| (0..routing.experts()).filter(|&e| routing.names(token, e)).count())
        .sum();
    let both = both_ways(routing.ranks, |comm| {
        let config = Fixture {
            ranks: routing.ranks,
            experts: routing.experts(),
            max_tokens: MOST,
            topk: routing.topk,
            max_recv: routing.ranks * MOST * routing.topk,
            ids: |_| vec![],
            values: |_| vec![],
            weight: |_, _| 0.0,
        };
        let mut ht = HighThroughputRank::fresh(comm, config, EXPERT_MAJOR, 0, |_| ());
        assert_ok(ht.update(&mut routing.topk(comm.rank())));
        ht.published.total as usize
    });
    assert_eq!(both.map(|totals| totals.iter().sum::<usize>()), [sent; 2]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(40)
    })]

    #[test]
    fn high_throughput_flat_follows_the_model(routing in routing()) {
        routing.run(FLAT, high_throughput::assert_follows_model);
    }

    #[test]
    fn high_throughput_expert_major_follows_the_model(routing in routing()) {
        routing.run(EXPERT_MAJOR, high_throughput::assert_follows_model);
    }

    #[test]
    fn low_latency_expert_major_follows_the_model(routing in routing()) {
        routing.run(EXPERT_MAJOR, low_latency::assert_follows_model);
    }

    #[test]
    fn low_latency_rank_major_follows_the_model(routing in routing()) {
        routing.run(RANK_MAJOR, low_latency::assert_follows_model);
    }

    #[test]
    fn copies_are_conserved(routing in routing()) {
        assert_copies_are_conserved(&routing);
    }
}
