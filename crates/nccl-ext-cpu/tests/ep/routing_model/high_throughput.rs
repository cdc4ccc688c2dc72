//! High throughput.

use nccl_ep_sys::{VersionedStruct, ncclEpLayout_t, ncclEpLayoutInfo_t};
use nccl_ext_core::{Comm, bf16};
use nccl_ext_test::cpu::ep::*;

use super::{MOST, Routing, answer, round};

/// What a rank receives.
struct Expected<'a> {
    routing: &'a Routing,
    rank: usize,
    layout: ncclEpLayout_t,
    /// FLAT: tokens in order.
    flat: Vec<(usize, usize)>,
    /// Expert-major: token and expert of each slot.
    zones: Vec<Option<((usize, usize), usize)>>,
}

pub(crate) fn assert_follows_model(comm: &Comm, routing: &Routing, layout: ncclEpLayout_t) {
    let (rank, topk) = (comm.rank(), routing.topk);
    let mut config = routing.config(HIGH_THROUGHPUT, HT_HIDDEN);
    // Eager mode with a bound that padding and duplicates cannot exceed.
    config.num_topk = topk as u32;
    if topk > routing.experts() {
        config.num_topk = 0;
        config.max_recv_tokens_per_rank = (routing.ranks * MOST * topk + 16 * routing.local) as u32;
    }
    let budget = config.max_recv_tokens_per_rank as usize;
    let group = TestGroup::new(comm, &config);
    let handle = group.handle(layout, topk, routing.alignment);
    let (flat, zones) = (routing.flat(rank), routing.zones(rank));
    let expected = Expected { routing, rank, layout, flat, zones };
    expected.assert_counters(&handle);
    // Two rows more than are needed hold canaries.
    let room = expected.rows().max(budget) + 2;
    expected.assert_received(&handle, room);
    expected.assert_sums(&handle, room);
}

impl Expected<'_> {
    fn expert_major(&self) -> bool {
        self.layout == EXPERT_MAJOR
    }

    fn rows(&self) -> usize {
        if self.expert_major() { self.zones.len() } else { self.flat.len() }
    }

    /// Updates the handle.
    fn assert_counters(&self, handle: &TestHandle) {
        let Self { routing, rank, flat, .. } = self;
        let mut counters32 = TestTensor::filled(&[routing.local], -9_i32);
        let mut counters = TestTensor::filled(&[routing.local], -9_i64);
        let mut offsets = TestTensor::filled(&[routing.local], -9_i64);
        let mut total = TestTensor::filled(&[1], -9_i64);
        let mut info = ncclEpLayoutInfo_t::init();
        let em = self.expert_major();
        info.expert_counters = if em { counters.descriptor() } else { counters32.descriptor() };
        info.expert_offsets = offsets.descriptor();
        info.recv_total_counter = total.descriptor();
        assert_ok(update_handle(handle, &mut routing.topk(*rank), Some(&info)));
        assert_eq!(total.data, [self.rows() as i64]);
        let mut base = 0;
        for (j, expert) in routing.owned(*rank).enumerate() {
            let count = flat.iter().filter(|&&token| routing.names(token, expert)).count();
            if em {
                let padded = count.next_multiple_of(routing.alignment.max(1)) as i64;
                assert_eq!((counters.data[j], offsets.data[j]), (padded, base));
                base += padded;
            } else {
                assert_eq!(counters32.data[j], count as i32);
            }
        }
    }

    /// Dispatches into that many rows.
    fn assert_received(&self, handle: &TestHandle, room: usize) {
        let (topk, em) = (self.routing.topk, self.expert_major());
        let shape = if em { vec![room] } else { vec![room, topk] };
        let mut call = DispatchCall {
            tokens: Some(self.routing.tokens(self.rank)),
            weights: Some(self.routing.weights(self.rank)),
            out_tokens: Some(TestTensor::filled(&[room, HT_HIDDEN], bf16::from_f32(CANARY))),
            out_weights: Some(TestTensor::filled(&shape, CANARY)),
            out_ids: (!em).then(|| TestTensor::filled(&shape, CANARY as i64)),
            ..DispatchCall::default()
        };
        assert_ok(call.call(handle));
        let received = Received::of(call);
        let rows = self.rows();
        assert!(received.rows[rows..].iter().all(|&x| x == CANARY));
        if em {
            assert!(received.weights[rows..].iter().all(|&x| x == CANARY));
            self.assert_zones(&received);
        } else {
            assert!(received.weights[rows * topk..].iter().all(|&x| x == CANARY));
            assert!(received.ids[rows * topk..].iter().all(|&x| x == CANARY as i64));
            self.assert_flat_rows(&received);
        }
    }

    fn assert_zones(&self, received: &Received) {
        for (slot, entry) in self.zones.iter().enumerate() {
            let expected = entry.map_or((0.0, 0.0), |(token, expert)| {
                (self.routing.value(token.0, token.1), self.weight(token, expert))
            });
            assert_eq!((received.rows[slot], received.weights[slot]), expected, "slot {slot}");
        }
    }

    fn assert_flat_rows(&self, received: &Received) {
        let Self { routing, rank, .. } = self;
        for (slot, &token) in self.flat.iter().enumerate() {
            assert_eq!(received.rows[slot], routing.value(token.0, token.1), "slot {slot}");
            let experts = routing.owned(*rank).filter(|&e| routing.names(token, e));
            let entry = |e| ((e - rank * routing.local) as i64, self.weight(token, e));
            let mut expected: Vec<_> = experts.map(entry).collect();
            expected.resize(routing.topk, (-1, 0.0));
            let columns = slot * routing.topk..(slot + 1) * routing.topk;
            let ids = received.ids[columns.clone()].iter().copied();
            let found: Vec<_> = ids.zip(received.weights[columns].iter().copied()).collect();
            assert_eq!(found, expected, "slot {slot}");
        }
    }

    fn weight(&self, token: (usize, usize), expert: usize) -> f32 {
        let position = self.routing.position(token, expert).unwrap();
        self.routing.weight(token.0, token.1, position)
    }

    /// Combines answers that tell their slots.
    fn assert_sums(&self, handle: &TestHandle, room: usize) {
        let Self { routing, rank, .. } = *self;
        let answers: Vec<_> = (0..room).map(|slot| answer(rank, slot)).collect();
        let tokens = routing.ids[rank].len();
        let mut call = CombineCall::new(
            TestTensor::new(&[room, HT_HIDDEN], uniform_rows(&answers, HT_HIDDEN)),
            TestTensor::filled(&[tokens, HT_HIDDEN], bf16::from_f32(CANARY)),
        );
        assert_ok(call.call(handle));
        let sums = row_values(&call.out.unwrap().data, HT_HIDDEN);
        for (token, &sum) in sums.iter().enumerate() {
            let part = |d| match self.expert_major() {
                true => part_of_zones(routing, d, (rank, token)),
                false => {
                    let slot = routing.flat(d).iter().position(|&x| x == (rank, token));
                    slot.map_or(0.0, |slot| answer(d, slot))
                }
            };
            let expected = (0..routing.ranks).fold(0.0_f32, |sum, d| sum + part(d));
            assert_eq!(sum, round(expected), "token {token}");
        }
    }
}

/// What a rank gives back for all slots of a token, rounded.
fn part_of_zones(routing: &Routing, rank: usize, token: (usize, usize)) -> f32 {
    let zones = routing.zones(rank).into_iter().enumerate();
    let slots = zones.filter(|(_, entry)| entry.is_some_and(|(of, _)| of == token));
    round(slots.fold(0.0, |part, (slot, _)| part + answer(rank, slot)))
}
