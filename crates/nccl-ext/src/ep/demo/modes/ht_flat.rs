//! High throughput, flat: a rank gets a token once, with its local experts in ascending order, and
//! sums their weighted outputs before combine.

use nccl_ep::{
    Buffer, CombineInputs, DispatchConfig, DispatchInputs, DispatchOutputs, LayoutInfo, Mode,
    Result, Tensor, TensorMut, bf16,
};

use crate::ep::demo::experts;
use crate::ep::demo::rank::{Arrived, Rank, Round};
use crate::ep::demo::received::{Received, digest};
use crate::rows;

pub(super) fn run(rank: &Rank<'_>) -> Result<Vec<Round>> {
    let (group, mut handle) = rank.open(Mode::HighThroughputFlat)?;
    let (local, hidden, top_k) = (group.local_experts(), rank.sizes.hidden, rank.sizes.top_k);
    let mut counters = Buffer::<i32>::zeroed(rank.comm, local)?;
    let mut total = Buffer::<i32>::zeroed(rank.comm, 1)?;
    let mut combined = rank.combined()?;
    let mut rounds: Vec<Round> = Vec::new();
    for _ in 0..rank.rounds {
        rank.poison(&mut counters)?;
        rank.poison(&mut total)?;
        let mut info = LayoutInfo::new()
            .expert_counters(TensorMut::new(&mut counters, &[local])?)
            .recv_total_counter(TensorMut::new(&mut total, &[1])?);
        let mut step = handle.update(rank.topk_idx()?, Some(&mut info), rank.stream())?;
        // Eager: the outputs have the rows that will arrive.
        let count = rank.count(&total)?;
        let mut rows = Buffer::<bf16>::zeroed(rank.comm, count * hidden)?;
        let mut weights = Buffer::<f32>::zeroed(rank.comm, count * top_k)?;
        let mut ids = Buffer::<i64>::zeroed(rank.comm, count * top_k)?;
        rank.poison(&mut rows)?;
        rank.poison(&mut weights)?;
        rank.poison(&mut ids)?;
        let inputs = DispatchInputs::new(rank.tokens()?).topk_weights(rank.topk_weights()?);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &[count, hidden])?)
            .topk_weights(TensorMut::new(&mut weights, &[count, top_k])?)
            .topk_idx(TensorMut::new(&mut ids, &[count, top_k])?);
        let dispatch = rank.timed(|| {
            step.dispatch(&inputs, &mut outputs, None, &DispatchConfig::new(), rank.stream())
        })?;

        let mut received = rows.to_vec(rank.stream())?;
        let (ids, weights) = (ids.to_vec(rank.stream())?, weights.to_vec(rank.stream())?);
        let named = |i: usize| (&ids[i * top_k..][..top_k], &weights[i * top_k..][..top_k]);
        let digests = rounds.is_empty().then(|| {
            let digest = |i: usize| {
                let (ids, weights) = named(i);
                digest(&received[i * hidden..][..hidden], weights, ids.iter().copied())
            };
            Received { zones: vec![rows::map(rank.threads, count, hidden, digest)] }
        });
        rank.corrupt(&mut received);
        let placement = group.placement();
        rows::each(rank.threads, &mut received, hidden, |i, row| {
            let (ids, weights) = named(i);
            let experts = rank.named_experts(&placement, ids.iter().copied(), weights);
            experts::weighted_sum(row, &experts);
        });
        rows.write(&received, rank.stream())?;

        let inputs = CombineInputs::new(Tensor::new(&rows, &[count, hidden])?);
        let arrived = Arrived {
            rows: count,
            counters: counters.to_vec(rank.stream())?.into_iter().map(i64::from).collect(),
            received: digests,
            dispatch,
        };
        rounds.push(rank.combine(&mut step, &inputs, &mut combined, arrived, rounds.last())?);
    }
    handle.destroy()?;
    group.destroy()?;
    Ok(rounds)
}
