//! Low latency, rank-major: a rank gets a token once, in the place of its source rank, and sums the
//! weighted outputs of its experts before combine.

use nccl_ep::{
    Buffer, CombineInputs, DispatchConfig, DispatchInputs, DispatchOutputs, LayoutInfo, Mode,
    Result, Tensor, TensorMut, bf16,
};

use crate::ep::demo::experts;
use crate::ep::demo::rank::{Arrived, Rank, Round};
use crate::ep::demo::received::{Received, digest};
use crate::rows;

pub(super) fn run(rank: &Rank<'_>) -> Result<Vec<Round>> {
    let (group, mut handle) = rank.open(Mode::LowLatencyRankMajor)?;
    let (ranks, hidden, top_k) = (rank.sizes.ranks, rank.sizes.hidden, rank.sizes.top_k);
    let places = ranks * rank.max_tokens;
    let shape = |width| [ranks, rank.max_tokens, width];
    let mut rows = Buffer::<bf16>::zeroed(rank.comm, places * hidden)?;
    let mut weights = Buffer::<f32>::zeroed(rank.comm, places * top_k)?;
    let mut ids = Buffer::<i32>::zeroed(rank.comm, places * top_k)?;
    let mut counters = Buffer::<i32>::zeroed(rank.comm, ranks)?;
    let mut combined = rank.combined()?;
    let mut rounds: Vec<Round> = Vec::new();
    for _ in 0..rank.rounds {
        let mut step = handle.update(rank.topk_idx()?, None, rank.stream())?;
        rank.poison(&mut rows)?;
        rank.poison(&mut weights)?;
        ids.fill_bytes(0, rank.stream())?; // where nothing arrives, the library writes -1
        rank.poison(&mut counters)?;
        let inputs = DispatchInputs::new(rank.tokens()?).topk_weights(rank.topk_weights()?);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &shape(hidden))?)
            .topk_weights(TensorMut::new(&mut weights, &shape(top_k))?)
            .topk_idx(TensorMut::new(&mut ids, &shape(top_k))?);
        let counted = TensorMut::new(&mut counters, &[ranks])?;
        let mut info = LayoutInfo::new().src_rank_counters(counted);
        let dispatch = rank.timed(|| {
            let config = DispatchConfig::new();
            step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, rank.stream())
        })?;

        let mut received = rows.to_vec(rank.stream())?;
        let (ids, weights) = (ids.to_vec(rank.stream())?, weights.to_vec(rank.stream())?);
        let named = |i: usize| (&ids[i * top_k..][..top_k], &weights[i * top_k..][..top_k]);
        let placement = group.placement();
        let experts = |i: usize| {
            let (ids, weights) = named(i);
            rank.named_experts(&placement, ids.iter().copied(), weights)
        };
        // A place without experts holds no token.
        let live: Vec<_> = (0..places).filter(|i| !experts(*i).is_empty()).collect();
        let digests = rounds.is_empty().then(|| {
            let digests = rows::map(rank.threads, live.len(), hidden, |at| {
                let (ids, weights) = named(live[at]);
                let row = &received[live[at] * hidden..][..hidden];
                digest(row, weights, ids.iter().map(|id| i64::from(*id)))
            });
            let mut zones = vec![Vec::new(); ranks];
            for (place, digest) in live.iter().zip(digests) {
                zones[place / rank.max_tokens].push(digest);
            }
            Received { zones }
        });
        if let Some(place) = live.first() {
            rank.corrupt(&mut received[place * hidden..]);
        }
        rows::each(rank.threads, &mut received, hidden, |i, row| {
            let experts = experts(i);
            if !experts.is_empty() {
                experts::weighted_sum(row, &experts);
            }
        });
        rows.write(&received, rank.stream())?;

        let inputs = CombineInputs::new(Tensor::new(&rows, &shape(hidden))?);
        let arrived = Arrived {
            rows: live.len(),
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
