//! High throughput, expert-major: rows arrive in a zone for each local expert, each with its
//! weight, which the caller applies; combine adds a rank's experts and then the ranks.

use nccl_ep::{
    Algorithm, Buffer, CombineConfig, CombineInputs, DispatchConfig, DispatchInputs,
    DispatchOutputs, HandleConfig, Layout, LayoutInfo, LocalExpert, Result, Tensor, TensorMut,
    TopK, bf16,
};

use super::experts::Expert;
use super::rank::{Rank, Round};

pub(super) fn run(rank: &Rank<'_>) -> Result<Vec<Round>> {
    let group = rank.group(Algorithm::HighThroughput)?;
    let (layout, config) = (Layout::ExpertMajor, HandleConfig::new());
    let mut handle = group.init_handle(layout, &config, TopK::Auto, None)?;
    let (local, hidden) = (group.local_experts(), rank.sizes.hidden);
    let mut counters = Buffer::<i32>::zeroed(rank.comm, local)?;
    let mut offsets = Buffer::<i32>::zeroed(rank.comm, local)?;
    let mut total = Buffer::<i32>::zeroed(rank.comm, 1)?;
    let mut combined = rank.combined()?;
    let mut rounds = Vec::new();
    for _ in 0..rank.rounds {
        rank.poison(&mut counters)?;
        rank.poison(&mut offsets)?;
        rank.poison(&mut total)?;
        let mut info = LayoutInfo::new()
            .expert_counters(TensorMut::new(&mut counters, &[local])?)
            .expert_offsets(TensorMut::new(&mut offsets, &[local])?)
            .recv_total_counter(TensorMut::new(&mut total, &[1])?);
        let mut step = handle.update(rank.topk_idx()?, Some(&mut info), rank.stream)?;
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
            step.dispatch(&inputs, &mut outputs, None, &DispatchConfig::new(), rank.stream)
        })?;

        let counts = counters.to_vec(rank.stream)?;
        let offsets = offsets.to_vec(rank.stream)?;
        let mut received = rows.to_vec(rank.stream)?;
        let weights = weights.to_vec(rank.stream)?;
        rank.corrupt(&mut received);
        for (j, (offset, count)) in offsets.iter().zip(&counts).enumerate() {
            let Some(expert) = group.placement().global(rank.comm.rank(), LocalExpert(j)) else {
                continue;
            };
            let expert = Expert::new(expert);
            let number = |n: &i32| usize::try_from(*n).unwrap_or(0);
            let zone = received.chunks_mut(hidden).zip(&weights);
            for (row, weight) in zone.skip(number(offset)).take(number(count)) {
                expert.apply_weighted(row, *weight);
            }
        }
        rows.write(&received, rank.stream)?;

        let inputs = CombineInputs::new(Tensor::new(&rows, &[count, hidden])?);
        let mut outputs = rank.outputs(&mut combined)?;
        let combine =
            rank.timed(|| step.combine(&inputs, &mut outputs, &CombineConfig::new(), rank.stream))?;
        rounds.push(Round {
            rows: count,
            counters: counts.into_iter().map(i64::from).collect(),
            combined: combined.to_vec(rank.stream)?,
            dispatch,
            combine,
        });
    }
    handle.destroy()?;
    group.destroy()?;
    Ok(rounds)
}
