//! Prepared handles where work runs after its call: copies of their memory may still be on their way.

use nccl_ep::{
    Buffer, CombineConfig, CombineInputs, CombineOutputs, Comm, DispatchConfig, DispatchInputs,
    DispatchOutputs, Group, Handle, HandleConfig, HandleMemory, Layout, OwnedStream, Result, Step,
    Stream, Tensor, TensorMut, TopK, bf16,
};
use nccl_ext_cpu::run_ranks;

use crate::support::*;

const HIDDEN: usize = 512;

/// Runs `body` on two ranks, for several seeds.
fn for_seeds(body: impl Fn(&Comm, [Stream<'_>; 2]) -> Result<()> + Sync) {
    for seed in 0..8 {
        let ends = run_ranks(2, &config().deferred(seed), |comm| {
            let streams = [OwnedStream::new(&comm)?, OwnedStream::new(&comm)?];
            body(&comm, [streams[0].stream(), streams[1].stream()])
        });
        let failures: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
        assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    }
}

/// A handle in memory of the caller's, updated with ids of G2. Nothing waits for the update, as the end
/// of the ids would.
fn prepared(comm: &Comm, group: &Group, ids: &Buffer<i64>, stream: Stream<'_>) -> Result<Handle> {
    let options = HandleConfig::new();
    let size = group.handle_mem_size(Layout::ExpertMajor, &options, TopK::Auto)?;
    let memory: HandleMemory = Box::new(Buffer::<u8>::zeroed(comm, size)?);
    let mut handle = group.init_handle(Layout::ExpertMajor, &options, TopK::Auto, Some(memory))?;
    handle.update(Tensor::new(ids, &[4, 2])?, None, stream)?;
    Ok(handle)
}

/// The sums of a round of G2 in which every expert gives back what it got.
fn round(comm: &Comm, step: &mut Step<'_, Handle>, stream: Stream<'_>) -> Result<Vec<f32>> {
    let rank = comm.rank();
    let tokens = Buffer::from_slice(comm, &G2::tokens(rank, HIDDEN))?;
    let weights = Buffer::from_slice(comm, &G2::weights(rank))?;
    let mut rows = Buffer::<bf16>::zeroed(comm, 16 * HIDDEN)?;
    let mut row_weights = Buffer::<f32>::zeroed(comm, 16)?;
    let mut sums = Buffer::<bf16>::zeroed(comm, 4 * HIDDEN)?;
    let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, HIDDEN])?)
        .topk_weights(Tensor::new(&weights, &[4, 2])?);
    let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &[16, HIDDEN])?)
        .topk_weights(TensorMut::new(&mut row_weights, &[16])?);
    step.dispatch(&inputs, &mut outputs, None, &DispatchConfig::new(), stream)?;
    let inputs = CombineInputs::new(Tensor::new(&rows, &[16, HIDDEN])?);
    let mut outputs = CombineOutputs::new(TensorMut::new(&mut sums, &[4, HIDDEN])?);
    step.combine(&inputs, &mut outputs, &CombineConfig::new(), stream)?;
    Ok(row_values(&sums.to_vec(stream)?, HIDDEN))
}

/// EP 3.5.3: a token once for each expert that it names.
fn expected(rank: usize) -> Vec<f32> {
    let experts = [[2., 2., 2., 0.], [1., 1., 2., 2.]][rank];
    (0..4).map(|token| experts[token] * G2::value(rank, token)).collect()
}

#[test]
fn a_snapshot_on_another_stream_is_restored_at_once() {
    for_seeds(|comm, [a, b]| {
        let group = Group::create(comm, &high_throughput().num_topk(2))?;
        let ids = Buffer::from_slice(comm, &G2::IDS[comm.rank()])?;
        let handle = prepared(comm, &group, &ids, a)?;
        let snapshot = handle.snapshot(b)?;
        drop(handle.destroy()?);
        let mut restored = snapshot.restore(&group)?;
        assert_eq!(round(comm, &mut restored, a)?, expected(comm.rank()));
        assert_eq!(round(comm, &mut restored, b)?, expected(comm.rank()));
        restored.into_handle().destroy()?;
        group.destroy()?;
        Ok(())
    });
}

#[test]
fn memory_that_an_update_still_writes_is_imported() {
    for_seeds(|comm, [a, b]| {
        let group = Group::create(comm, &high_throughput().num_topk(2))?;
        let ids = Buffer::from_slice(comm, &G2::IDS[comm.rank()])?;
        let handle = prepared(comm, &group, &ids, a)?;
        let state = handle.state().unwrap();
        let memory = handle.destroy()?.unwrap();
        let options = HandleConfig::new();
        let layout = Layout::ExpertMajor;
        let mut step = group.import_handle(layout, &options, &state, memory)?;
        assert_eq!(round(comm, &mut step, b)?, expected(comm.rank()));
        step.into_handle().destroy()?;
        group.destroy()?;
        Ok(())
    });
}
