//! High throughput, expert-major: rows arrive in a zone for each local expert, each with its
//! weight, which the caller applies; combine adds a rank's experts and then the ranks.

use std::ops::Range;

use nccl_ep::{
    Buffer, CombineInputs, DispatchConfig, DispatchInputs, DispatchOutputs, LayoutInfo,
    LocalExpert, Mode, Result, Tensor, TensorMut, bf16,
};

use crate::ep::demo::experts::Expert;
use crate::ep::demo::rank::{Arrived, Rank, Round};
use crate::ep::demo::received::{Received, digest};
use crate::rows;

pub(super) fn run(rank: &Rank<'_>) -> Result<Vec<Round>> {
    let (group, mut handle) = rank.open(Mode::HighThroughputExpertMajor)?;
    let (local, hidden) = (group.local_experts(), rank.sizes.hidden);
    let mut counters = Buffer::<i32>::zeroed(rank.comm, local)?;
    let mut offsets = Buffer::<i32>::zeroed(rank.comm, local)?;
    let mut total = Buffer::<i32>::zeroed(rank.comm, 1)?;
    let mut combined = rank.combined()?;
    let mut rounds: Vec<Round> = Vec::new();
    for _ in 0..rank.rounds {
        rank.poison(&mut counters)?;
        rank.poison(&mut offsets)?;
        rank.poison(&mut total)?;
        let mut info = LayoutInfo::new()
            .expert_counters(TensorMut::new(&mut counters, &[local])?)
            .expert_offsets(TensorMut::new(&mut offsets, &[local])?)
            .recv_total_counter(TensorMut::new(&mut total, &[1])?);
        let mut step = handle.update(rank.topk_idx()?, Some(&mut info), rank.stream())?;
        // Eager: the outputs have the rows that will arrive.
        let count = rank.count(&total)?;
        let mut rows = Buffer::<bf16>::zeroed(rank.comm, count * hidden)?;
        let mut weights = Buffer::<f32>::zeroed(rank.comm, count)?;
        rank.poison(&mut rows)?;
        rank.poison(&mut weights)?;
        let inputs = DispatchInputs::new(rank.tokens()?).topk_weights(rank.topk_weights()?);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &[count, hidden])?)
            .topk_weights(TensorMut::new(&mut weights, &[count])?);
        let dispatch = rank.timed(|| {
            step.dispatch(&inputs, &mut outputs, None, &DispatchConfig::new(), rank.stream())
        })?;

        let counts = counters.to_vec(rank.stream())?;
        let offsets = offsets.to_vec(rank.stream())?;
        let mut received = rows.to_vec(rank.stream())?;
        let weights = weights.to_vec(rank.stream())?;
        let zones: Vec<_> =
            offsets.iter().zip(&counts).map(|(offset, n)| zone(*offset, *n, count)).collect();
        let digests = rounds.is_empty().then(|| {
            let digest = |i: usize| {
                digest(&received[i * hidden..][..hidden], &weights[i..=i], std::iter::empty())
            };
            let all = rows::map(rank.threads, count, hidden, digest);
            Received { zones: zones.iter().map(|zone| all[zone.clone()].to_vec()).collect() }
        });
        rank.corrupt(&mut received);
        for (j, zone) in zones.into_iter().enumerate() {
            let Some(expert) = group.placement().global(rank.comm.rank(), LocalExpert(j)) else {
                continue;
            };
            let expert = Expert::new(expert);
            let weights = &weights[zone.clone()];
            let zone = &mut received[zone.start * hidden..zone.end * hidden];
            rows::each(rank.threads, zone, hidden, |i, row| expert.apply_weighted(row, weights[i]));
        }
        rows.write(&received, rank.stream())?;

        let inputs = CombineInputs::new(Tensor::new(&rows, &[count, hidden])?);
        let arrived = Arrived {
            rows: count,
            counters: counts.into_iter().map(i64::from).collect(),
            received: digests,
            dispatch,
        };
        rounds.push(rank.combine(&mut step, &inputs, &mut combined, arrived, rounds.last())?);
    }
    handle.destroy()?;
    group.destroy()?;
    Ok(rounds)
}

/// An expert's rows, as far as there are any.
fn zone(offset: i32, rows: i32, all: usize) -> Range<usize> {
    let number = |number: i32| usize::try_from(number).unwrap_or(0);
    let start = number(offset).min(all);
    start..(start + number(rows)).min(all)
}
