//! Low latency, expert-major: rows arrive grouped by local expert, combine applies the weights.

use nccl_ep::{
    Buffer, CombineInputs, DispatchConfig, DispatchInputs, DispatchOutputs, LayoutInfo,
    LocalExpert, Mode, Result, Tensor, TensorMut, bf16,
};

use crate::ep::demo::experts::Expert;
use crate::ep::demo::rank::{Arrived, Rank, Round};
use crate::ep::demo::received::{Received, digest};
use crate::rows;

pub(super) fn run(rank: &Rank<'_>) -> Result<Vec<Round>> {
    let (group, mut handle) = rank.open(Mode::LowLatencyExpertMajor)?;
    let (local, hidden) = (group.local_experts(), rank.sizes.hidden);
    let zone = rank.sizes.ranks * rank.max_tokens;
    let shape = [local, zone, hidden];
    // The experts work in place: what was received is what is combined.
    let mut rows = Buffer::<bf16>::zeroed(rank.comm, local * zone * hidden)?;
    let mut counters = Buffer::<i32>::zeroed(rank.comm, local)?;
    let mut combined = rank.combined()?;
    let mut rounds: Vec<Round> = Vec::new();
    for _ in 0..rank.rounds {
        let mut step = handle.update(rank.topk_idx()?, None, rank.stream())?;
        rank.poison(&mut rows)?;
        rank.poison(&mut counters)?;
        let inputs = DispatchInputs::new(rank.tokens()?);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &shape)?);
        let counted = TensorMut::new(&mut counters, &[local])?;
        let mut info = LayoutInfo::new().expert_counters(counted);
        let dispatch = rank.timed(|| {
            let config = DispatchConfig::new();
            step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, rank.stream())
        })?;

        let counts = counters.to_vec(rank.stream())?;
        // There is room for every token at every expert: only what arrived is copied.
        let mut zones = Vec::new();
        let mut first = true;
        for (j, count) in counts.iter().enumerate() {
            let Some(expert) = group.placement().global(rank.comm.rank(), LocalExpert(j)) else {
                continue;
            };
            let expert = Expert::new(expert);
            let count = usize::try_from(*count).unwrap_or(0).min(zone);
            let mut received = vec![bf16::ZERO; count * hidden];
            rows.read_range_into(j * zone * hidden, &mut received, rank.stream())?;
            if rounds.is_empty() {
                let digest =
                    |i: usize| digest(&received[i * hidden..][..hidden], &[], std::iter::empty());
                zones.push(rows::map(rank.threads, count, hidden, digest));
            }
            if count > 0 && std::mem::take(&mut first) {
                rank.corrupt(&mut received);
            }
            rows::each(rank.threads, &mut received, hidden, |_, row| expert.apply(row));
            rows.write_range(j * zone * hidden, &received, rank.stream())?;
        }
        let digests = rounds.is_empty().then_some(Received { zones });

        let inputs =
            CombineInputs::new(Tensor::new(&rows, &shape)?).routing_weights(rank.topk_weights()?);
        let counters: Vec<_> = counts.into_iter().map(i64::from).collect();
        let arrived = Arrived {
            rows: counters.iter().map(|count| usize::try_from(*count).unwrap_or(0)).sum(),
            counters,
            received: digests,
            dispatch,
        };
        rounds.push(rank.combine(&mut step, &inputs, &mut combined, arrived, rounds.last())?);
    }
    handle.destroy()?;
    group.destroy()?;
    Ok(rounds)
}
