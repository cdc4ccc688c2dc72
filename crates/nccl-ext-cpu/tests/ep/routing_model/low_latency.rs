//! Low latency.

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_core::{Comm, bf16};
use nccl_ext_test::cpu::INVALID_ARGUMENT;
use nccl_ext_test::cpu::ep::*;

use super::{MOST, Routing, answer, round};

/// The copies of an expert, duplicates in a row included, in this backend's order.
fn copies(routing: &Routing, expert: usize) -> Vec<(usize, usize, usize)> {
    let entries = |(s, t): (usize, usize)| (0..routing.topk).map(move |k| (s, t, k));
    let all = routing.all().flat_map(entries);
    all.filter(|&(s, t, k)| routing.ids[s][t][k] == expert as i64).collect()
}

pub(crate) fn assert_follows_model(comm: &Comm, routing: &Routing, layout: ncclEpLayout_t) {
    const LL_HIDDEN: usize = 512;
    let (rank, topk, ranks, local) = (comm.rank(), routing.topk, routing.ranks, routing.local);
    if topk > routing.experts() {
        return;
    }
    let em = layout == EXPERT_MAJOR;
    let room = ranks * MOST;
    let overfull = (0..routing.experts()).any(|e| copies(routing, e).len() > room);
    let group = TestGroup::new(comm, &routing.config(LOW_LATENCY, LL_HIDDEN));
    let handle = group.handle(layout, topk, 0);
    let mut ids = routing.topk(rank);
    assert_ok(update_handle(&handle, &mut ids, None));
    let shape = if em { [local, room, LL_HIDDEN] } else { [ranks, MOST, LL_HIDDEN] };
    let tokens = routing.ids[rank].len();
    let own: Vec<_> = (0..tokens).map(|t| routing.value(rank, t)).collect();
    let columns = [ranks, MOST, topk];
    let mut call = DispatchCall {
        tokens: Some(TestTensor::new(&[tokens, LL_HIDDEN], uniform_rows(&own, LL_HIDDEN))),
        weights: (!em).then(|| routing.weights(rank)),
        out_tokens: Some(TestTensor::filled(&shape, bf16::from_f32(CANARY))),
        out_weights: (!em).then(|| TestTensor::filled(&columns, CANARY)),
        out_ids32: (!em).then(|| TestTensor::filled(&columns, CANARY as i32)),
        counters: em.then(|| TestTensor::filled(&[local], -9)),
        src_counters: (!em).then(|| TestTensor::filled(&[ranks], -9)),
        ..DispatchCall::default()
    };
    let code = call.call(&handle);
    if em && overfull {
        assert_eq!(code, INVALID_ARGUMENT);
        return;
    }
    assert_ok(code);
    let got = row_values(&call.out_tokens.unwrap().data, LL_HIDDEN);
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
    let mut call = CombineCall::new(
        TestTensor::new(&shape, uniform_rows(&answers, LL_HIDDEN)),
        TestTensor::filled(&[tokens, LL_HIDDEN], bf16::from_f32(CANARY)),
    );
    call.weights = em.then(|| routing.weights(rank));
    assert_ok(call.call(&handle));
    let sums = row_values(&call.out.unwrap().data, LL_HIDDEN);
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
