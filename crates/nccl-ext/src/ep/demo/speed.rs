//! How long the calls take, as the vendor's benchmarks for its Python package measure it: plain
//! buffers, a receive budget, many calls enqueued without waiting in between.

use std::time::Instant;

use nccl_ep::{
    Algorithm, Buffer, CombineConfig, CombineInputs, CombineOutputs, DispatchConfig,
    DispatchInputs, DispatchOutputs, Layout, LayoutInfo, Mode, Result, Tensor, TensorMut, bf16,
};
use nccl_ext_core::Event;

use super::outcome::{Speed, Time};
use super::rank::Rank;

/// Calls before the timed ones.
const WARM_UP: usize = 5;
/// Calls that are timed together.
const CALLS: usize = 50;

/// Shapes of what is received.
struct Shapes {
    rows: Vec<usize>,
    /// Without it the layout gives no weights.
    weights: Option<Vec<usize>>,
    /// Of int64 and of int32 ids.
    wide_ids: Option<Vec<usize>>,
    narrow_ids: Option<Vec<usize>>,
    /// Rows by expert or source rank.
    counters: usize,
}

impl Shapes {
    fn new(rank: &Rank<'_>, mode: Mode, budget: usize) -> Self {
        let (ranks, hidden, top_k) = (rank.sizes.ranks, rank.sizes.hidden, rank.sizes.top_k);
        let (local, tokens) = (rank.sizes.local_experts(), rank.max_tokens);
        let plain =
            |rows| Self { rows, weights: None, wide_ids: None, narrow_ids: None, counters: local };
        let ids = |leading: &[usize]| Some([leading, &[top_k]].concat());
        match mode {
            Mode::LowLatencyRankMajor => Self {
                weights: ids(&[ranks, tokens]),
                narrow_ids: ids(&[ranks, tokens]),
                counters: ranks,
                ..plain(vec![ranks, tokens, hidden])
            },
            Mode::LowLatencyExpertMajor => plain(vec![local, ranks * tokens, hidden]),
            Mode::HighThroughputFlat => Self {
                weights: ids(&[budget]),
                wide_ids: ids(&[budget]),
                ..plain(vec![budget, hidden])
            },
            Mode::HighThroughputExpertMajor => {
                Self { weights: Some(vec![budget]), ..plain(vec![budget, hidden]) }
            }
        }
    }
}

/// Times update, dispatch and combine in this mode. Every rank calls it.
pub(super) fn measure(rank: &Rank<'_>, mode: Mode) -> Result<Speed> {
    let high = mode.algorithm() == Algorithm::HighThroughput;
    let copies = if mode.layout() == Layout::ExpertMajor { rank.sizes.top_k } else { 1 };
    let budget = rank.sizes.ranks * rank.max_tokens * copies;
    let group = rank.group(mode, |config| {
        if high {
            config.max_recv_tokens_per_rank(u32::try_from(budget).unwrap_or(u32::MAX))
        } else {
            config.enable_mask(true)
        }
    })?;
    let mut handle = rank.handle(&group, mode)?;

    let shapes = Shapes::new(rank, mode, budget);
    let size = |shape: &[usize]| shape.iter().product::<usize>();
    let optional = |shape: &Option<Vec<usize>>| shape.as_deref().map_or(0, size);
    let mut rows = Buffer::<bf16>::zeroed(rank.comm, size(&shapes.rows))?;
    let mut weights = Buffer::<f32>::zeroed(rank.comm, optional(&shapes.weights))?;
    let mut wide_ids = Buffer::<i64>::zeroed(rank.comm, optional(&shapes.wide_ids))?;
    let mut narrow_ids = Buffer::<i32>::zeroed(rank.comm, optional(&shapes.narrow_ids))?;
    let mut counters = Buffer::<i32>::zeroed(rank.comm, shapes.counters)?;
    let mut total = Buffer::<i32>::zeroed(rank.comm, 1)?;
    let mut combined = rank.combined()?;
    let stream = rank.stream();

    // High throughput counts at update, low latency at dispatch.
    let counted = TensorMut::new(&mut counters, &[shapes.counters])?;
    let mut info = LayoutInfo::new();
    if mode == Mode::LowLatencyRankMajor {
        info = info.src_rank_counters(counted);
    } else {
        info = info.expert_counters(counted);
    }
    if high {
        info = info.recv_total_counter(TensorMut::new(&mut total, &[1])?);
    }

    let mut step = handle.update(rank.topk_idx()?, high.then_some(&mut info), stream)?;
    let mut inputs = DispatchInputs::new(rank.tokens()?);
    let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &shapes.rows)?);
    if let Some(shape) = &shapes.weights {
        inputs = inputs.topk_weights(rank.topk_weights()?);
        outputs = outputs.topk_weights(TensorMut::new(&mut weights, shape)?);
    }
    if let Some(shape) = &shapes.wide_ids {
        outputs = outputs.topk_idx(TensorMut::new(&mut wide_ids, shape)?);
    }
    if let Some(shape) = &shapes.narrow_ids {
        outputs = outputs.topk_idx(TensorMut::new(&mut narrow_ids, shape)?);
    }
    let config = DispatchConfig::new();
    let dispatch = time(rank, || {
        step.dispatch(&inputs, &mut outputs, (!high).then_some(&mut info), &config, stream)
    })?;

    let mut inputs = CombineInputs::new(Tensor::new(&rows, &shapes.rows)?);
    if mode == Mode::LowLatencyExpertMajor {
        inputs = inputs.routing_weights(rank.topk_weights()?);
    }
    let shape = [rank.sizes.tokens_per_rank, rank.sizes.hidden];
    let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &shape)?);
    let config = CombineConfig::new();
    let combine = time(rank, || step.combine(&inputs, &mut outputs, &config, stream))?;
    drop(step);

    let topk_idx = rank.topk_idx()?;
    let update =
        time(rank, || handle.update(topk_idx, high.then_some(&mut info), stream).map(drop))?;
    handle.destroy()?;
    group.destroy()?;
    Ok(Speed { update, dispatch, combine })
}

/// Times a call: the device's time between two events around all of them, and the host's of each.
fn time(rank: &Rank<'_>, mut call: impl FnMut() -> Result<()>) -> Result<Time> {
    let stream = rank.stream();
    for _ in 0..WARM_UP {
        call()?;
    }
    stream.synchronize(rank.comm)?;
    let (mut start, mut end) = (Event::new(rank.comm)?, Event::new(rank.comm)?);
    let mut host = Vec::with_capacity(CALLS);
    start.record(stream)?;
    for _ in 0..CALLS {
        let begin = Instant::now();
        call()?;
        host.push(begin.elapsed());
    }
    end.record(stream)?;
    stream.synchronize(rank.comm)?;
    host.sort_unstable();
    let micros = |seconds: f64| seconds * 1e6;
    Ok(Time {
        gpu: micros(end.elapsed_since(&start)?.as_secs_f64()) / CALLS as f64,
        host: micros(host[CALLS / 2].as_secs_f64()),
    })
}
