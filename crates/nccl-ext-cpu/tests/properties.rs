//! Random routings against a second implementation of the model (EP 3.5.3, 4.2 to 4.4, 4.6 to
//! 4.8), written from the text and as simply as possible: it enumerates all pairs of token and
//! expert and shares nothing with the backend.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::ptr::null;

use common::*;
use nccl_ep_sys::*;
use nccl_ext_core::{Comm, bf16};
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
    shape.prop_flat_map(|(ranks, local, topk, shift, seed, skew)| {
        // The vendor's kernels want a multiple of four experts in all.
        let local = if (ranks * local) % 4 == 0 { local } else { 4 };
        let experts = (ranks * local) as i64;
        let hot = (experts / 4).max(1);
        let id = match skew {
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

    fn tokens(&self, rank: usize) -> Ten<bf16> {
        let values: Vec<_> = (0..self.ids[rank].len()).map(|t| self.value(rank, t)).collect();
        Ten::new(&[values.len(), H], rows(&values, H))
    }

    fn weights(&self, rank: usize) -> Ten<f32> {
        let entries = (0..self.ids[rank].len()).flat_map(|t| (0..self.topk).map(move |k| (t, k)));
        let weights = entries.map(|(t, k)| self.weight(rank, t, k)).collect();
        Ten::new(&[self.ids[rank].len(), self.topk], weights)
    }

    fn topk(&self, rank: usize) -> Ten<i64> {
        ids(self.topk, &self.ids[rank].concat())
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
            ..config(algorithm)
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

fn high(comm: &Comm, routing: &Routing, layout: ncclEpLayout_t) {
    let (rank, topk) = (comm.rank(), routing.topk);
    let mut config = routing.config(HT, H);
    // Eager mode with a bound that padding and duplicates cannot exceed.
    config.num_topk = topk as u32;
    if topk > routing.experts() {
        config.num_topk = 0;
        config.max_recv_tokens_per_rank = (routing.ranks * MOST * topk + 16 * routing.local) as u32;
    }
    let budget = config.max_recv_tokens_per_rank as usize;
    let group = Group::new(comm, &config);
    let handle = group.handle(layout, topk, routing.alignment);
    let (mut counters32, mut counters) =
        (Ten::filled(&[routing.local], -9_i32), Ten::filled(&[routing.local], -9_i64));
    let mut offsets = Ten::filled(&[routing.local], -9_i64);
    let mut total = Ten::filled(&[1], -9_i64);
    let mut info = ncclEpLayoutInfo_t::init();
    let em = layout == EM;
    info.expert_counters = if em { counters.d() } else { counters32.d() };
    info.expert_offsets = offsets.d();
    info.recv_total_counter = total.d();
    ok(update_with(&handle, &mut routing.topk(rank), &info));

    let flat = routing.flat(rank);
    let zones = routing.zones(rank);
    let received = if em { zones.len() } else { flat.len() };
    assert_eq!(total.data, [received as i64]);
    let mut base = 0;
    for (j, expert) in routing.owned(rank).enumerate() {
        let count = flat.iter().filter(|&&token| routing.names(token, expert)).count();
        if em {
            let padded = if routing.alignment > 1 {
                count.div_ceil(routing.alignment) * routing.alignment
            } else {
                count
            };
            assert_eq!((counters.data[j], offsets.data[j]), (padded as i64, base));
            base += padded as i64;
        } else {
            assert_eq!(counters32.data[j], count as i32);
        }
    }

    // Two rows more than are needed hold canaries.
    let room = received.max(budget) + 2;
    let shape = if em { vec![room] } else { vec![room, topk] };
    let mut call = Dispatch {
        tokens: Some(routing.tokens(rank)),
        weights: Some(routing.weights(rank)),
        out_tokens: Some(Ten::filled(&[room, H], bf16::from_f32(CANARY))),
        out_weights: Some(Ten::filled(&shape, CANARY)),
        out_ids: (!em).then(|| Ten::filled(&shape, CANARY as i64)),
        ..Dispatch::default()
    };
    ok(call.call(&handle));
    let got = Received::of(call);
    let weight = |(s, t): (usize, usize), expert: usize| {
        routing.weight(s, t, routing.position((s, t), expert).unwrap())
    };
    if em {
        for (slot, entry) in zones.iter().enumerate() {
            let (value, w) = entry.map_or((0.0, 0.0), |((s, t), expert)| {
                (routing.value(s, t), weight((s, t), expert))
            });
            assert_eq!((got.rows[slot], got.weights[slot]), (value, w), "slot {slot}");
        }
        assert!(got.weights[received..].iter().all(|&x| x == CANARY));
    } else {
        for (slot, &(s, t)) in flat.iter().enumerate() {
            assert_eq!(got.rows[slot], routing.value(s, t), "slot {slot}");
            let experts = routing.owned(rank).filter(|&e| routing.names((s, t), e));
            let mut row: Vec<_> =
                experts.map(|e| ((e - rank * routing.local) as i64, weight((s, t), e))).collect();
            row.resize(topk, (-1, 0.0));
            let columns = slot * topk..(slot + 1) * topk;
            let found = got.ids[columns.clone()].iter().copied().zip(got.weights[columns].to_vec());
            assert_eq!(found.collect::<Vec<_>>(), row, "slot {slot}");
        }
        assert!(got.ids[received * topk..].iter().all(|&x| x == CANARY as i64));
        assert!(got.weights[received * topk..].iter().all(|&x| x == CANARY));
    }
    assert!(got.rows[received..].iter().all(|&x| x == CANARY));

    let answers: Vec<_> = (0..room).map(|slot| answer(rank, slot)).collect();
    let tokens = routing.ids[rank].len();
    let mut call = Combine {
        tokens: Some(Ten::new(&[room, H], rows(&answers, H))),
        out: Some(Ten::filled(&[tokens, H], bf16::from_f32(CANARY))),
        ..Combine::default()
    };
    ok(call.call(&handle));
    let sums = values(&call.out.unwrap().data, H);
    for (t, &sum) in sums.iter().enumerate() {
        let mut expected = 0.0_f32;
        for d in 0..routing.ranks {
            if em {
                let zones = routing.zones(d);
                let mut part = 0.0_f32;
                let mut any = false;
                for (slot, entry) in zones.iter().enumerate() {
                    if entry.is_some_and(|(token, _)| token == (rank, t)) {
                        part += answer(d, slot);
                        any = true;
                    }
                }
                expected += if any { round(part) } else { 0.0 };
            } else if let Some(slot) = routing.flat(d).iter().position(|&x| x == (rank, t)) {
                expected += answer(d, slot);
            }
        }
        assert_eq!(sum, round(expected), "token {t}");
    }
}

/// The copies of an expert, duplicates in a row included, in this backend's order.
fn copies(routing: &Routing, expert: usize) -> Vec<(usize, usize, usize)> {
    let entries = |(s, t): (usize, usize)| (0..routing.topk).map(move |k| (s, t, k));
    let all = routing.all().flat_map(entries);
    all.filter(|&(s, t, k)| routing.ids[s][t][k] == expert as i64).collect()
}

fn low(comm: &Comm, routing: &Routing, layout: ncclEpLayout_t) {
    const WIDE: usize = 512;
    let (rank, topk, ranks, local) = (comm.rank(), routing.topk, routing.ranks, routing.local);
    if topk > routing.experts() {
        return;
    }
    let em = layout == EM;
    let room = ranks * MOST;
    let overfull = (0..routing.experts()).any(|e| copies(routing, e).len() > room);
    let group = Group::new(comm, &routing.config(LL, WIDE));
    let handle = group.handle(layout, topk, 0);
    let mut ids = routing.topk(rank);
    ok(update_with(&handle, &mut ids, null()));
    let shape = if em { [local, room, WIDE] } else { [ranks, MOST, WIDE] };
    let tokens = routing.ids[rank].len();
    let own: Vec<_> = (0..tokens).map(|t| routing.value(rank, t)).collect();
    let columns = [ranks, MOST, topk];
    let mut call = Dispatch {
        tokens: Some(Ten::new(&[tokens, WIDE], rows(&own, WIDE))),
        weights: (!em).then(|| routing.weights(rank)),
        out_tokens: Some(Ten::filled(&shape, bf16::from_f32(CANARY))),
        out_weights: (!em).then(|| Ten::filled(&columns, CANARY)),
        out_ids32: (!em).then(|| Ten::filled(&columns, CANARY as i32)),
        counters: em.then(|| Ten::filled(&[local], -9)),
        src_counters: (!em).then(|| Ten::filled(&[ranks], -9)),
        ..Dispatch::default()
    };
    let code = call.call(&handle);
    if em && overfull {
        assert_eq!(code, ARGUMENT);
        return;
    }
    ok(code);
    let got = values(&call.out_tokens.unwrap().data, WIDE);
    let owned = |token: (usize, usize), d: usize| routing.owned(d).any(|e| routing.names(token, e));
    let of_source = |d: usize, s: usize| -> Vec<_> {
        routing.all().filter(|&token| token.0 == s && owned(token, d)).collect()
    };
    if em {
        for (j, expert) in routing.owned(rank).enumerate() {
            let copies = copies(routing, expert);
            assert_eq!(call.counters.as_ref().unwrap().data[j], copies.len() as i32);
            for (i, &row) in got[j * room..][..room].iter().enumerate() {
                let expected = copies.get(i).map_or(CANARY, |&(s, t, _)| routing.value(s, t));
                assert_eq!(row, expected);
            }
        }
    } else {
        let (ids, weights) = (call.out_ids32.unwrap().data, call.out_weights.unwrap().data);
        for s in 0..ranks {
            let tokens = of_source(rank, s);
            assert_eq!(call.src_counters.as_ref().unwrap().data[s], tokens.len() as i32);
            for i in 0..MOST {
                let row = s * MOST + i;
                let token = tokens.get(i);
                assert_eq!(got[row], token.map_or(CANARY, |&(s, t)| routing.value(s, t)));
                for k in 0..topk {
                    let found = (ids[row * topk + k], weights[row * topk + k]);
                    let expected = token.map_or((-1, CANARY), |&(s, t)| {
                        let id = routing.ids[s][t][k];
                        let own = routing.owned(rank).position(|e| e as i64 == id);
                        (own.map_or(-1, |own| own as i32), routing.weight(s, t, k))
                    });
                    assert_eq!(found, expected);
                }
            }
        }
    }

    let answers: Vec<_> = (0..shape[0] * shape[1]).map(|row| answer(rank, row)).collect();
    let mut call = Combine {
        tokens: Some(Ten::new(&shape, rows(&answers, WIDE))),
        out: Some(Ten::filled(&[tokens, WIDE], bf16::from_f32(CANARY))),
        weights: em.then(|| routing.weights(rank)),
        ..Combine::default()
    };
    ok(call.call(&handle));
    let sums = values(&call.out.unwrap().data, WIDE);
    for (t, &sum) in sums.iter().enumerate() {
        let mut expected = 0.0_f32;
        let mut seen = vec![];
        for k in 0..topk {
            let Ok(expert) = usize::try_from(routing.ids[rank][t][k]) else { continue };
            let d = expert / local;
            if em {
                let slot = copies(routing, expert).iter().position(|&c| c == (rank, t, k));
                let row = answer(d, expert % local * room + slot.unwrap());
                // In fp64 the product is exact, so the sum has the one rounding that matters
                // unless it is itself inexact there, which these values are too small for.
                let exact = f64::from(row) * f64::from(routing.weight(rank, t, k));
                expected = (exact + f64::from(expected)) as f32;
            } else if !seen.contains(&d) {
                seen.push(d);
                let slot = of_source(d, rank).iter().position(|&token| token == (rank, t));
                expected += answer(d, rank * MOST + slot.unwrap());
            }
        }
        assert_eq!(sum, round(expected), "token {t}");
    }
}

/// Every copy that was sent is received once: the counts of all ranks add up.
fn conserved(routing: &Routing) {
    let sent: usize = routing
        .all()
        .map(|token| (0..routing.experts()).filter(|&e| routing.names(token, e)).count())
        .sum();
    let totals = ranks(routing.ranks, |comm| {
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
        let mut ht = Ht::fresh(comm, config, EM, 0, |_| ());
        ok(ht.update(&mut routing.topk(comm.rank())));
        ht.published.total as usize
    });
    assert_eq!(totals.iter().sum::<usize>(), sent);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn high_throughput_flat_follows_the_model(routing in routing()) {
        ranks(routing.ranks, |comm| high(comm, &routing, FLAT));
    }

    #[test]
    fn high_throughput_expert_major_follows_the_model(routing in routing()) {
        ranks(routing.ranks, |comm| high(comm, &routing, EM));
    }

    #[test]
    fn low_latency_expert_major_follows_the_model(routing in routing()) {
        ranks(routing.ranks, |comm| low(comm, &routing, EM));
    }

    #[test]
    fn low_latency_rank_major_follows_the_model(routing in routing()) {
        ranks(routing.ranks, |comm| low(comm, &routing, RM));
    }

    #[test]
    fn copies_are_conserved(routing in routing()) {
        conserved(&routing);
    }
}
