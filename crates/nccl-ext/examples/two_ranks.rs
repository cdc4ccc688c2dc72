//! Two ranks exchange four tokens each, over the CPU backend.

use nccl_ep::{
    Buffer, CombineConfig, CombineInputs, CombineOutputs, Comm, DispatchConfig, DispatchInputs,
    DispatchOutputs, Group, GroupConfig, HandleConfig, Layout, LayoutInfo, Result, Stream, Tensor,
    TensorMut, TopK, bf16,
};
use nccl_ext_cpu::{CpuConfig, run_ranks};

const TOKENS: usize = 4;
const HIDDEN: usize = 512;

fn main() {
    for (rank, result) in run_ranks(2, &CpuConfig::new(), |comm| exchange(&comm)).iter().enumerate()
    {
        match result {
            Ok((rows, token)) => {
                println!("rank {rank}: rows of its experts {rows:?}, token 0 {token}")
            }
            Err(error) => eprintln!("rank {rank}: {error}"),
        }
    }
}

/// One rank: experts 0 and 1 live on rank 0, experts 2 and 3 on rank 1.
fn exchange(comm: &Comm) -> Result<(Vec<i32>, bf16)> {
    let stream = Stream::DEFAULT;
    let config = GroupConfig::new() // low latency, unless told otherwise
        .num_experts(4)
        .max_dispatch_tokens_per_rank(TOKENS as u32)
        .max_token_bytes((HIDDEN * size_of::<bf16>()) as u32)
        .num_topk(2);
    let group = Group::create(comm, &config)?;
    let mut handle =
        group.init_handle(Layout::ExpertMajor, &HandleConfig::new(), TopK::Auto, None)?;

    let value = bf16::from_f32(1.5 + comm.rank() as f32);
    let tokens = Buffer::from_slice(comm, &[value; TOKENS * HIDDEN])?;
    let experts = Buffer::from_slice(comm, &[0_i64, 2, 1, 3, 2, 0, 3, -1])?; // -1: no expert
    let weights = Buffer::from_slice(comm, &[0.5_f32; TOKENS * 2])?;
    let shape = [group.local_experts(), comm.size() * TOKENS, HIDDEN];
    let mut received = Buffer::<bf16>::zeroed(comm, shape.iter().product())?;
    let mut counts = Buffer::<i32>::zeroed(comm, group.local_experts())?;
    let mut combined = Buffer::<bf16>::zeroed(comm, TOKENS * HIDDEN)?;

    let mut step = handle.update(Tensor::new(&experts, &[TOKENS, 2])?, None, stream)?;
    let counters = TensorMut::new(&mut counts, &[shape[0]])?;
    step.dispatch(
        &DispatchInputs::new(Tensor::new(&tokens, &[TOKENS, HIDDEN])?),
        &mut DispatchOutputs::new(TensorMut::new(&mut received, &shape)?),
        Some(&mut LayoutInfo::new().expert_counters(counters)),
        &DispatchConfig::new(),
        stream,
    )?;
    // The experts would work on `received` here: expert `j` on its first `counts[j]` rows.
    step.combine(
        &CombineInputs::new(Tensor::new(&received, &shape)?)
            .routing_weights(Tensor::new(&weights, &[TOKENS, 2])?),
        &mut CombineOutputs::new(TensorMut::new(&mut combined, &[TOKENS, HIDDEN])?),
        &CombineConfig::new(),
        stream,
    )?;
    let result = (counts.to_vec(stream)?, combined.to_vec(stream)?[0]);
    handle.destroy()?;
    group.destroy()?;
    Ok(result)
}
