//! Calls on several streams where work runs after its call: the library orders what the program does
//! not (case A2). The backend finds every use that has no order.

use std::time::Duration;

use nccl_ep::{
    Buffer, CombineConfig, CombineInputs, CombineOutputs, Comm, DispatchConfig, DispatchInputs,
    DispatchOutputs, Error, Group, GroupConfig, Layout, LayoutInfo, OwnedStream, Result, Tensor,
    TensorMut, bf16,
};
use nccl_ext_core::{PinnedBuffer, Reduction};
use nccl_ext_cpu::run_ranks;

use crate::support::*;

const HIDDEN: usize = 512;
const SEEDS: u64 = 12;

/// Runs `body` on two ranks for several seeds. It gives each rank's combined values for every step.
fn for_seeds(expected: [[f32; 4]; 2], body: impl Fn(&Comm) -> Result<Vec<Vec<f32>>> + Sync) {
    for seed in 0..SEEDS {
        let results = run_ranks(2, &config().deferred(seed), |comm: Comm| {
            let steps = body(&comm)?;
            comm.destroy()?;
            Ok::<_, nccl_ep::Error>(steps)
        });
        for (rank, steps) in results.into_iter().enumerate() {
            for step in steps.unwrap_or_else(|error| panic!("seed {seed}: {error}")) {
                assert_eq!(step, expected[rank], "seed {seed}, rank {rank}");
            }
        }
    }
}

/// What is written over inputs as soon as the borrow checker allows it.
struct Garbage {
    ids: PinnedBuffer<i64>,
    tokens: PinnedBuffer<bf16>,
}

impl Garbage {
    fn new(comm: &Comm) -> Result<Self> {
        let ids = PinnedBuffer::from_slice(comm, &[3_i64; 8])?;
        let tokens = PinnedBuffer::from_slice(comm, &vec![bf16::from_f32(-9.0); 4 * HIDDEN])?;
        Ok(Self { ids, tokens })
    }
}

fn group(comm: &Comm, config: &GroupConfig) -> Result<Group> {
    Group::create(comm, config)
}

#[test]
fn low_latency_with_a_stream_for_each_call() {
    for_seeds(G2::WEIGHTED, |comm| {
        let rank = comm.rank();
        let group = group(comm, &low_latency())?;
        let mut handle = top2(&group, Layout::ExpertMajor)?;
        let [s1, s2, s3] = [(); 3].map(|()| OwnedStream::new(comm));
        let (s1, s2, s3) = (s1?, s2?, s3?);
        let garbage = Garbage::new(comm)?;
        let (mine, weights) = (G2::tokens(rank, HIDDEN), G2::weights(rank));
        let mut ids = Buffer::<i64>::zeroed(comm, 8)?;
        let mut tokens = Buffer::<bf16>::zeroed(comm, 4 * HIDDEN)?;
        let weights = Buffer::from_slice(comm, &weights)?;
        let mut rows = Buffer::<bf16>::zeroed(comm, 2 * 8 * HIDDEN)?;
        let mut counters = Buffer::<i32>::zeroed(comm, 2)?;
        let mut steps = Vec::new();
        for _ in 0..3 {
            ids.write(&G2::UNIQUE_IDS[rank], s3.stream())?;
            tokens.write(&mine, s2.stream())?;
            let mut combined = Buffer::<bf16>::zeroed(comm, 4 * HIDDEN)?;
            let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, s3.stream())?;
            let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, HIDDEN])?);
            let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &[2, 8, HIDDEN])?);
            let counters = TensorMut::new(&mut counters, &[2])?;
            let mut info = LayoutInfo::new().expert_counters(counters);
            let plain = DispatchConfig::new();
            step.dispatch(&inputs, &mut outputs, Some(&mut info), &plain, s1.stream())?;
            tokens.enqueue_write(&garbage.tokens, s3.stream())?;
            let inputs = CombineInputs::new(Tensor::new(&rows, &[2, 8, HIDDEN])?)
                .routing_weights(Tensor::new(&weights, &[4, 2])?);
            let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[4, HIDDEN])?);
            step.combine(&inputs, &mut outputs, &CombineConfig::new(), s2.stream())?;
            drop(step);
            ids.enqueue_write(&garbage.ids, s3.stream())?;
            rows.fill_bytes(0x55, s1.stream())?;
            steps.push(row_values(&combined.to_vec(s3.stream())?, HIDDEN));
        }
        // In an order that no stream and no buffer has to care for.
        drop((s1, ids, s3, tokens, rows));
        handle.destroy()?;
        group.destroy()?;
        Ok(steps)
    });
}

#[test]
fn high_throughput_with_a_stream_for_each_call() {
    for_seeds(G2::SUMMED, |comm| {
        let rank = comm.rank();
        let group = group(comm, &high_throughput())?;
        let mut handle = top2(&group, Layout::Flat)?;
        let [s1, s2, s3] = [(); 3].map(|()| OwnedStream::new(comm));
        let (s1, s2, s3) = (s1?, s2?, s3?);
        let garbage = Garbage::new(comm)?;
        let (mine, weights) = (G2::tokens(rank, HIDDEN), G2::weights(rank));
        let mut ids = Buffer::<i64>::zeroed(comm, 8)?;
        let mut tokens = Buffer::<bf16>::zeroed(comm, 4 * HIDDEN)?;
        let weights = Buffer::from_slice(comm, &weights)?;
        let mut rows = Buffer::<bf16>::zeroed(comm, 16 * HIDDEN)?;
        let mut row_weights = Buffer::<f32>::zeroed(comm, 16 * 2)?;
        let mut row_ids = Buffer::<i64>::zeroed(comm, 16 * 2)?;
        let s4 = OwnedStream::new(comm)?;
        let ones = Buffer::from_slice(comm, &[1_i32])?;
        let mut sum = Buffer::<i32>::zeroed(comm, 1)?;
        let mut steps = Vec::new();
        for _ in 0..3 {
            ids.write(&G2::UNIQUE_IDS[rank], s2.stream())?;
            tokens.write(&mine, s3.stream())?;
            let mut combined = Buffer::<bf16>::zeroed(comm, 4 * HIDDEN)?;
            let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, s1.stream())?;
            let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, HIDDEN])?)
                .topk_weights(Tensor::new(&weights, &[4, 2])?);
            let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &[16, HIDDEN])?)
                .topk_weights(TensorMut::new(&mut row_weights, &[16, 2])?)
                .topk_idx(TensorMut::new(&mut row_ids, &[16, 2])?);
            step.dispatch(&inputs, &mut outputs, None, &DispatchConfig::new(), s2.stream())?;
            tokens.enqueue_write(&garbage.tokens, s1.stream())?;
            // A collective of the communicator in between, on a stream that nothing else is on.
            comm.all_reduce(&ones, &mut sum, Reduction::Sum, s4.stream())?;
            let inputs = CombineInputs::new(Tensor::new(&rows, &[16, HIDDEN])?);
            let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[4, HIDDEN])?);
            step.combine(&inputs, &mut outputs, &CombineConfig::new(), s3.stream())?;
            drop(step);
            ids.enqueue_write(&garbage.ids, s2.stream())?;
            rows.fill_bytes(0x55, s1.stream())?;
            assert_eq!(sum.to_vec(s4.stream())?, [2]);
            steps.push(row_values(&combined.to_vec(s2.stream())?, HIDDEN));
        }
        drop((s2, row_ids, s1, rows));
        handle.destroy()?;
        group.destroy()?;
        Ok(steps)
    });
}

/// A peer that has not come keeps the work from being done, and a wait that is limited ends.
#[test]
fn a_step_is_done_when_the_peers_have_come() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let results = run_ranks(2, &config().deferred(3), |comm: Comm| {
        let rank = comm.rank();
        let group = group(&comm, &low_latency())?;
        let mut handle = top2(&group, Layout::ExpertMajor)?;
        let stream = OwnedStream::new(&comm)?;
        let ids = Buffer::from_slice(&comm, &G2::UNIQUE_IDS[rank])?;
        let tokens = Buffer::from_slice(&comm, &G2::tokens(rank, HIDDEN))?;
        let mut rows = Buffer::<bf16>::zeroed(&comm, 2 * 8 * HIDDEN)?;
        let mut counters = Buffer::<i32>::zeroed(&comm, 2)?;
        if rank == 1 {
            told.lock().unwrap().recv().unwrap();
        }
        let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, stream.stream())?;
        let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, HIDDEN])?);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &[2, 8, HIDDEN])?);
        let mut info = LayoutInfo::new().expert_counters(TensorMut::new(&mut counters, &[2])?);
        let plain = DispatchConfig::new();
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &plain, stream.stream())?;
        if rank == 0 {
            assert!(!step.is_done()?);
            let limit = Duration::from_millis(5);
            let error = step.wait_for(limit).unwrap_err();
            let Error::Timeout { ranks, waited, .. } = &error else { panic!("{error}") };
            assert!(ranks.is_empty() && *waited >= limit, "{error}");
            tell.send(()).unwrap();
        }
        step.wait_for(Duration::from_secs(20))?;
        assert!(step.is_done()?);
        drop(step);
        let counted = counters.to_vec(stream.stream())?;
        handle.destroy()?;
        group.destroy()?;
        Ok::<_, Error>(counted)
    });
    for counted in results {
        assert_eq!(counted.unwrap(), [3, 3]);
    }
}
