use nccl_ep::{Handle, Stream, Tensor};

fn main() {}

fn step(handle: &mut Handle, indices: &[i64]) -> nccl_ep::Result<usize> {
    let topk_idx = Tensor::new(indices, &[4, 2])?;
    let step = handle.update(topk_idx, None, Stream::DEFAULT)?;
    handle.update(topk_idx, None, Stream::DEFAULT)?;
    Ok(step.tokens())
}
