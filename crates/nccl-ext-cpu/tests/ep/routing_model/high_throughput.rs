//! High throughput.

use nccl_ep_sys::{VersionedStruct, ncclEpLayout_t, ncclEpLayoutInfo_t};
use nccl_ext_core::{Comm, bf16};
use nccl_ext_test::cpu::ep::*;

use super::{MOST, Routing, answer, round};

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
    let (mut counters32, mut counters) = (
        TestTensor::filled(&[routing.local], -9_i32),
        TestTensor::filled(&[routing.local], -9_i64),
    );
    let mut offsets = TestTensor::filled(&[routing.local], -9_i64);
    let mut total = TestTensor::filled(&[1], -9_i64);
    let mut info = ncclEpLayoutInfo_t::init();
    let em = layout == EXPERT_MAJOR;
    info.expert_counters = if em { counters.descriptor() } else { counters32.descriptor() };
    info.expert_offsets = offsets.descriptor();
    info.recv_total_counter = total.descriptor();
    assert_ok(update_handle(&handle, &mut routing.topk(rank), Some(&info)));

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
    let mut call = DispatchCall {
        tokens: Some(routing.tokens(rank)),
        weights: Some(routing.weights(rank)),
        out_tokens: Some(TestTensor::filled(&[room, HT_HIDDEN], bf16::from_f32(CANARY))),
        out_weights: Some(TestTensor::filled(&shape, CANARY)),
        out_ids: (!em).then(|| TestTensor::filled(&shape, CANARY as i64)),
        ..DispatchCall::default()
    };
    assert_ok(call.call(&handle));
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
    let mut call = CombineCall::new(
        TestTensor::new(&[room, HT_HIDDEN], uniform_rows(&answers, HT_HIDDEN)),
        TestTensor::filled(&[tokens, HT_HIDDEN], bf16::from_f32(CANARY)),
    );
    assert_ok(call.call(&handle));
    let sums = row_values(&call.out.unwrap().data, HT_HIDDEN);
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
