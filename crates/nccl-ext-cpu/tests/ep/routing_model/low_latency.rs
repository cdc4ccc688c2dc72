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

/// The tokens of a source that a rank receives, in order.
fn of_source(routing: &Routing, rank: usize, source: usize) -> Vec<(usize, usize)> {
    routing.flat(rank).into_iter().filter(|token| token.0 == source).collect()
}

pub(crate) fn assert_follows_model(comm: &Comm, routing: &Routing, layout: ncclEpLayout_t) {
    // More experts a token than there are cannot be asked of low latency.
    if routing.topk > routing.experts() {
        return;
    }
    let em = layout == EXPERT_MAJOR;
    let (rank, ranks, local) = (comm.rank(), routing.ranks, routing.local);
    let room = ranks * MOST;
    let group = TestGroup::new(comm, &routing.config(LOW_LATENCY, LL_HIDDEN));
    let handle = group.handle(layout, routing.topk, 0);
    let mut ids = routing.topk(rank);
    assert_ok(update_handle(&handle, &mut ids, None));
    let shape = if em { [local, room, LL_HIDDEN] } else { [ranks, MOST, LL_HIDDEN] };
    let mut call = dispatch_call(routing, rank, em, &shape);
    let code = call.call(&handle);
    if em && (0..routing.experts()).any(|expert| copies(routing, expert).len() > room) {
        assert_eq!(code, INVALID_ARGUMENT);
        return;
    }
    assert_ok(code);
    if em {
        assert_experts(routing, rank, call);
    } else {
        assert_sources(routing, rank, call);
    }
    let answers: Vec<_> = (0..shape[0] * shape[1]).map(|row| answer(rank, row)).collect();
    let mut call = CombineCall::new(
        TestTensor::new(&shape, uniform_rows(&answers, LL_HIDDEN)),
        TestTensor::filled(&[routing.ids[rank].len(), LL_HIDDEN], bf16::from_f32(CANARY)),
    );
    call.weights = em.then(|| routing.weights(rank));
    assert_ok(call.call(&handle));
    let sums = row_values(&call.out.unwrap().data, LL_HIDDEN);
    for (t, &sum) in sums.iter().enumerate() {
        let expected =
            if em { weighted_sum(routing, rank, t) } else { sum_over_ranks(routing, rank, t) };
        assert_eq!(sum, round(expected), "token {t}");
    }
}

/// A dispatch of the routing's tokens into canaries.
fn dispatch_call(routing: &Routing, rank: usize, em: bool, shape: &[usize; 3]) -> DispatchCall {
    let tokens = routing.ids[rank].len();
    let own: Vec<_> = (0..tokens).map(|t| routing.value(rank, t)).collect();
    let columns = [routing.ranks, MOST, routing.topk];
    DispatchCall {
        tokens: Some(TestTensor::new(&[tokens, LL_HIDDEN], uniform_rows(&own, LL_HIDDEN))),
        weights: (!em).then(|| routing.weights(rank)),
        out_tokens: Some(TestTensor::filled(shape, bf16::from_f32(CANARY))),
        out_weights: (!em).then(|| TestTensor::filled(&columns, CANARY)),
        out_ids32: (!em).then(|| TestTensor::filled(&columns, CANARY as i32)),
        counters: em.then(|| TestTensor::filled(&[routing.local], -9)),
        src_counters: (!em).then(|| TestTensor::filled(&[routing.ranks], -9)),
        ..DispatchCall::default()
    }
}

/// Expert-major: every expert has its copies, and the rows beyond are untouched.
fn assert_experts(routing: &Routing, rank: usize, call: DispatchCall) {
    let room = routing.ranks * MOST;
    let rows = row_values(&call.out_tokens.unwrap().data, LL_HIDDEN);
    let counters = call.counters.unwrap().data;
    for (j, expert) in routing.owned(rank).enumerate() {
        let copies = copies(routing, expert);
        assert_eq!(counters[j], copies.len() as i32);
        for (i, &row) in rows[j * room..][..room].iter().enumerate() {
            let expected = copies.get(i).map_or(CANARY, |&(s, t, _)| routing.value(s, t));
            assert_eq!(row, expected);
        }
    }
}

/// Rank-major: every source has its tokens with ids and weights, and dead rows have no ids.
fn assert_sources(routing: &Routing, rank: usize, call: DispatchCall) {
    let topk = routing.topk;
    let rows = row_values(&call.out_tokens.unwrap().data, LL_HIDDEN);
    let counters = call.src_counters.unwrap().data;
    let (ids, weights) = (call.out_ids32.unwrap().data, call.out_weights.unwrap().data);
    for (source, &count) in counters.iter().enumerate() {
        let tokens = of_source(routing, rank, source);
        assert_eq!(count, tokens.len() as i32);
        for i in 0..MOST {
            let row = source * MOST + i;
            let token = tokens.get(i);
            assert_eq!(rows[row], token.map_or(CANARY, |&(s, t)| routing.value(s, t)));
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

/// The experts that a token names, by position.
fn named(routing: &Routing, rank: usize, token: usize) -> impl Iterator<Item = (usize, usize)> {
    let ids = routing.ids[rank][token].iter().enumerate();
    ids.filter_map(|(k, &id)| usize::try_from(id).ok().map(|expert| (k, expert)))
}

/// Expert-major: a fused multiply and add for each entry.
fn weighted_sum(routing: &Routing, rank: usize, token: usize) -> f32 {
    let (room, local) = (routing.ranks * MOST, routing.local);
    named(routing, rank, token).fold(0.0, |sum: f32, (k, expert)| {
        let slot = copies(routing, expert).iter().position(|&copy| copy == (rank, token, k));
        let row = answer(expert / local, expert % local * room + slot.unwrap());
        // In fp64 the product is exact, so the sum has the one rounding that matters unless it is
        // itself inexact there, which these values are too small for.
        let exact = f64::from(row) * f64::from(routing.weight(rank, token, k));
        (exact + f64::from(sum)) as f32
    })
}

/// Rank-major: one row of each rank, in the order in which the token names them.
fn sum_over_ranks(routing: &Routing, rank: usize, token: usize) -> f32 {
    let (mut sum, mut seen) = (0.0_f32, vec![]);
    for (_, expert) in named(routing, rank, token) {
        let d = expert / routing.local;
        if !seen.contains(&d) {
            seen.push(d);
            let tokens = of_source(routing, d, rank);
            let slot = tokens.iter().position(|&found| found == (rank, token));
            sum += answer(d, rank * MOST + slot.unwrap());
        }
    }
    sum
}
