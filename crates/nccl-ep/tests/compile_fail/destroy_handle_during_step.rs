use nccl_ep::{Handle, Stream, Tensor};

fn main() {}

fn step(mut handle: Handle, indices: &[i64]) -> nccl_ep::Result<usize> {
    let topk_idx = Tensor::new(indices, &[4, 2])?;
    let step = handle.update(topk_idx, None, Stream::DEFAULT)?;
    handle.destroy()?;
    Ok(step.tokens())
}
