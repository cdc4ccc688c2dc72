//! Wrong expert ids: left out where they would corrupt memory, and told without falling out of step.

use std::borrow::BorrowMut;
use std::fmt::Debug;

use nccl_ep::{
    CombineConfig, CombineInputs, CombineOutputs, DispatchConfig, DispatchInputs, DispatchOutputs,
    Element, Error, ExpertIdKind, GroupConfig, Handle, HandleConfig, Layout, LayoutInfo, Result,
    Step, Tensor, TensorMut, TopK, Validation, bf16,
};

use crate::support::*;

const HIDDEN: usize = 512;
const TOKENS: usize = 4;

fn low_latency() -> GroupConfig {
    crate::support::low_latency().num_experts(8)
}

fn high_throughput() -> GroupConfig {
    crate::support::high_throughput().num_experts(8).max_recv_tokens_per_rank(32)
}

/// Four tokens of a rank, different on each.
fn tokens(rank: usize) -> Vec<bf16> {
    G2::tokens(rank, HIDDEN)
}

/// A weight for each choice, no two alike.
fn weights(rank: usize, topk: usize) -> Vec<f32> {
    (0..TOKENS * topk).map(|at| 0.25 + (rank * 100 + at) as f32 / 8.0).collect()
}

/// What a rank sees of a step: all that it received, sorted where the order is not promised, and
/// what came back.
#[derive(Debug, PartialEq)]
struct Seen {
    counters: Vec<i32>,
    received: Vec<Vec<f32>>,
    weights: Vec<f32>,
    ids: Vec<i64>,
    combined: Vec<bf16>,
}

type Told = Option<(u64, usize, usize)>;

/// What a call told of ids.
fn told(result: Result<()>) -> Result<Told> {
    match result {
        Ok(()) => Ok(None),
        Err(Error::Ids { count, token, choice }) => Ok(Some((count, token, choice))),
        Err(other) => Err(other),
    }
}

/// A round in either algorithm; and what dispatch and combine told of ids.
fn round<H>(step: &mut Step<'_, H>, rank: usize) -> Result<(Seen, Told, Told)>
where
    H: BorrowMut<Handle>,
{
    let topk = step.handle().num_topk();
    let (tokens, weights) = (tokens(rank), weights(rank, topk));
    match step.handle().layout() {
        Layout::ExpertMajor => {
            let mut received = ExpertMajor::new_for(4, 2 * TOKENS, HIDDEN);
            let dispatched = told(received.dispatch(step, &tokens))?;
            let mut combined = vec![bf16::ZERO; TOKENS * HIDDEN];
            let rows = Tensor::new(&received.rows, &[4, 2 * TOKENS, HIDDEN])?;
            let routing = Tensor::new(&weights, &[TOKENS, topk])?;
            let inputs = CombineInputs::new(rows).routing_weights(routing);
            let mut outputs =
                CombineOutputs::new(TensorMut::new(&mut combined, &[TOKENS, HIDDEN])?);
            let plain = CombineConfig::new();
            let brought_back = told(step.combine(&inputs, &mut outputs, &plain, STREAM))?;
            let zones = (0..4).map(|expert| received.zone(expert).0).collect();
            let counters = received.counters;
            let (weights, ids) = (vec![], vec![]);
            let seen = Seen { counters, received: zones, weights, ids, combined };
            Ok((seen, dispatched, brought_back))
        }
        _ => {
            let mut received = Flat::new(32, HIDDEN, topk);
            let inputs = DispatchInputs::new(Tensor::new(&tokens, &[TOKENS, HIDDEN])?)
                .topk_weights(Tensor::new(&weights, &[TOKENS, topk])?);
            let rows = TensorMut::new(&mut received.rows, &[32, HIDDEN])?;
            let mut outputs = DispatchOutputs::new(rows)
                .topk_weights(TensorMut::new(&mut received.weights, &[32, topk])?)
                .topk_idx(TensorMut::new(&mut received.ids, &[32, topk])?);
            let mut info = LayoutInfo::new().recv_topk_idx_kind(ExpertIdKind::Global);
            let plain = DispatchConfig::new();
            let dispatched = step.dispatch(&inputs, &mut outputs, Some(&mut info), &plain, STREAM);
            let dispatched = told(dispatched)?;
            let mut combined = vec![bf16::ZERO; TOKENS * HIDDEN];
            let inputs = CombineInputs::new(Tensor::new(&received.rows, &[32, HIDDEN])?);
            let mut outputs =
                CombineOutputs::new(TensorMut::new(&mut combined, &[TOKENS, HIDDEN])?);
            let plain = CombineConfig::new();
            let brought_back = told(step.combine(&inputs, &mut outputs, &plain, STREAM))?;
            let received_rows = vec![received.values(32)];
            let (weights, ids) = (received.weights, received.ids);
            let seen = Seen { counters: vec![], received: received_rows, weights, ids, combined };
            Ok((seen, dispatched, brought_back))
        }
    }
}

const RIGHT: [[i64; 8]; 2] = [[0, 5, 3, 4, 7, 1, 2, 6], [4, 0, 7, 3, 1, -1, 5, 2]];

/// Rows of `topk` ids: those given, and as many right ones as make four tokens of them.
fn filled(topk: usize, ids: &[i64]) -> Vec<i64> {
    let mut filled = ids.to_vec();
    let mut row = (0..8_i64).cycle().skip(3);
    filled.extend(row.by_ref().take(TOKENS * topk - ids.len()));
    filled
}

/// Rank 0's ids are wrong. Both ranks see what they see where `harmless` stands in their place, rank 0
/// alone is told, by dispatch and once, and the next step is like any other.
#[track_caller]
fn as_if_harmless<T: Element + TryFrom<i64>>(
    config: &GroupConfig,
    layout: Layout,
    topk: usize,
    wrong: &[i64],
    harmless: &[i64],
    expected: (u64, usize, usize),
) where
    T::Error: Debug,
{
    let run = |first: &[i64]| {
        on_ranks(2, |comm| {
            let rank = comm.rank();
            let group = nccl_ep::Group::create(&comm, config)?;
            let options = HandleConfig::new();
            let mut handle = group.init_handle(layout, &options, TopK::N(topk as u32), None)?;
            let right = filled(topk, &[]);
            let mut steps = vec![];
            for ids in [if rank == 0 { first } else { &right }, &right] {
                let mut ids: Vec<T> = ids.iter().map(|id| T::try_from(*id).unwrap()).collect();
                let mut step = handle.update(Tensor::new(&ids, &[TOKENS, topk])?, None, STREAM)?;
                // The copy is what counts.
                ids.fill(T::try_from(7).unwrap());
                drop(ids);
                steps.push(round(&mut step, rank)?);
            }
            handle.destroy()?;
            group.destroy()?;
            comm.destroy()?;
            Ok(steps)
        })
    };
    let (found, oracle) = (run(&filled(topk, wrong)), run(&filled(topk, harmless)));
    for (rank, (found, oracle)) in found.iter().zip(&oracle).enumerate() {
        for step in 0..2 {
            assert_eq!(found[step].0, oracle[step].0, "rank {rank}, step {step}");
            let (_, dispatched, combined) = oracle[step];
            assert_eq!((dispatched, combined), (None, None), "rank {rank}, step {step}");
            let first = (rank, step) == (0, 0);
            let (_, dispatched, combined) = found[step];
            assert_eq!((dispatched, combined), (first.then_some(expected), None), "rank {rank}");
        }
    }
}

/// Case A6.
#[test]
fn low_latency_leaves_out_what_would_corrupt_and_says_so() {
    let cases: [(&[i64], &[i64], _); 4] = [
        (&[3, 8], &[3, -1], (1, 0, 1)),
        (&[0, 1, 3, 1_000_000], &[0, 1, 3, -1], (1, 1, 1)),
        (&[3, 3], &[3, -1], (1, 0, 1)),
        (&[2, 1, 8, 8, 3, 3, 0, 99], &[2, 1, -1, -1, 3, -1, 0, -1], (4, 1, 0)),
    ];
    for (wrong, harmless, expected) in cases {
        let layout = Layout::ExpertMajor;
        as_if_harmless::<i64>(&low_latency(), layout, 2, wrong, harmless, expected);
        as_if_harmless::<i32>(&low_latency(), layout, 2, wrong, harmless, expected);
    }
}

/// Case A7. A repeated id stays: the library itself takes the first of its weights.
#[test]
fn high_throughput_says_which_weights_are_lost() {
    let cases: [(usize, &[i64], &[i64], _); 4] = [
        (4, &[5, 2, 5, 1], &[5, 2, -1, 1], (1, 0, 2)),
        (8, &[6; 8], &[6, -1, -1, -1, -1, -1, -1, -1], (7, 0, 1)),
        (4, &[0, 1, 2, 3, 3, 8, 1, 2], &[0, 1, 2, 3, 3, -1, 1, 2], (1, 1, 1)),
        (4, &[1_000_000, 2, 2, 1], &[-1, 2, -1, 1], (2, 0, 0)),
    ];
    for (topk, wrong, harmless, expected) in cases {
        let layout = Layout::Flat;
        let config = high_throughput().num_topk(topk as u32);
        as_if_harmless::<i64>(&config, layout, topk, wrong, harmless, expected);
        as_if_harmless::<i32>(&config, layout, topk, wrong, harmless, expected);
    }
}

/// Both ranks see of these ids of rank 0 what they see of -1 in place of each negative one, and
/// nobody is told anything.
#[track_caller]
fn none_for_each_negative<T>(ids: [T; 8])
where
    T: Element + Copy + Into<i64> + TryFrom<i64>,
    T::Error: Debug,
{
    let none = ids.map(|id| if id.into() < 0 { T::try_from(-1).unwrap() } else { id });
    for validation in [Validation::Host, Validation::Data] {
        for (config, layout) in
            [(low_latency(), Layout::ExpertMajor), (high_throughput(), Layout::Flat)]
        {
            let config = config.validation(validation);
            let rounds = |ids: [T; 8]| {
                with_handle(2, &config, layout, |group, handle| {
                    let rank = group.comm().rank();
                    let right = RIGHT[1].map(|id| T::try_from(id).unwrap());
                    let ids = if rank == 0 { ids } else { right };
                    let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
                    let (seen, dispatched, combined) = round(&mut step, rank)?;
                    assert_eq!((dispatched, combined), (None, None));
                    step.check(STREAM)?;
                    Ok(seen)
                })
            };
            assert_eq!(rounds(ids), rounds(none), "{layout:?}, {validation:?}");
        }
    }
}

/// Case A8. Low latency would take -65535 for an expert (EP 4.16).
#[test]
fn every_negative_id_is_none_and_not_wrong() {
    none_for_each_negative([3, -2, 3, i64::MIN, 0, -65_535, -7, -7]);
    none_for_each_negative([3, -2, 3, i32::MIN, 0, -65_535, -7, -7]);
}

/// EP 4.16: it is listed twice, each time with its own weight.
#[test]
fn low_latency_rank_major_takes_an_id_twice() {
    with_handle(2, &low_latency(), Layout::RankMajor, |_, handle| {
        let ids = Tensor::new(&[3_i64, 3, 8, 1], &[2, 2])?;
        let mut step = handle.update(ids, None, STREAM)?;
        assert_eq!(told(step.check(STREAM))?, Some((1, 1, 0)), "only the 8");
        Ok(())
    });
}

#[test]
fn check_tells_before_the_dispatch_does_and_once() {
    with_handle(2, &low_latency(), Layout::ExpertMajor, |group, handle| {
        let rank = group.comm().rank();
        let ids = Tensor::new(&[3_i64, 8, 1, 2, 4, 4, 5, 6], &[4, 2])?;
        let mut step = handle.update(ids, None, STREAM)?;
        assert_eq!(told(step.check(STREAM))?, Some((2, 0, 1)));
        assert_eq!(told(step.check(STREAM))?, None);
        let (_, dispatched, combined) = round(&mut step, rank)?;
        assert_eq!((dispatched, combined), (None, None));
        Ok(())
    });
}

/// An update gives its step whatever was wrong before: without the step the rank would be out of step.
#[test]
fn what_no_call_told_is_told_in_the_next_step() {
    with_handle(2, &low_latency(), Layout::ExpertMajor, |group, handle| {
        let rank = group.comm().rank();
        for wrong in [[9_i64, 0], [1, 1]] {
            drop(handle.update(Tensor::new(&wrong, &[1, 2])?, None, STREAM)?);
        }
        let mut step = handle.update(Tensor::new(&RIGHT[rank], &[4, 2])?, None, STREAM)?;
        let (_, dispatched, combined) = round(&mut step, rank)?;
        assert_eq!((dispatched, combined), (Some((2, 0, 0)), None));
        Ok(())
    });
}

#[test]
fn every_way_to_a_step_looks_at_the_ids() {
    on_ranks(2, |comm| {
        let group = nccl_ep::Group::create(&comm, &high_throughput())?;
        let (flat, options) = (Layout::Flat, HandleConfig::new());
        let ids = Tensor::new(&[5_i64, 5], &[1, 2])?;
        let expected = Some((1, 0, 1));

        let mut step = group.create_handle(flat, &options, ids, None, STREAM)?;
        assert_eq!(told(step.check(STREAM))?, expected);
        let mut step = step.into_handle().into_step(ids, None, STREAM)?;
        assert_eq!(told(step.check(STREAM))?, expected);

        let bytes = group.handle_mem_size(flat, &options, TopK::N(2))?;
        let memory = nccl_ep::Buffer::<u8>::zeroed(&comm, bytes)?;
        let mut handle = group.init_handle(flat, &options, TopK::N(2), Some(Box::new(memory)))?;
        drop(handle.update(Tensor::new(&[5_i64, 6], &[1, 2])?, None, STREAM)?);
        let snapshot = handle.snapshot(STREAM)?;
        let mut step = snapshot.restore_collective(&group, ids, None, STREAM)?;
        assert_eq!(told(step.check(STREAM))?, expected);

        // Nobody looks, and this library says itself what it cannot take.
        let wrong = Tensor::new(&[5_i64, 8], &[1, 2])?;
        // SAFETY: the CPU backend reads the ids before it returns, and refuses them.
        let refused = unsafe { handle.update_trusted(wrong, None, STREAM) }.map(drop);
        assert!(matches!(refused, Err(Error::Native { .. })), "{refused:?}");
        Ok(())
    });
}

/// Validation of data copies what passes.
#[test]
fn validated_ids_are_copied_too() {
    let config = low_latency().validation(Validation::Data);
    let rounds = |right: bool| {
        with_handle(2, &config, Layout::ExpertMajor, |group, handle| {
            let rank = group.comm().rank();
            let mut ids = RIGHT[rank].to_vec();
            let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
            if right {
                ids.fill(99);
            }
            drop(ids);
            Ok(round(&mut step, rank)?.0)
        })
    };
    assert_eq!(rounds(true), rounds(false));
}
