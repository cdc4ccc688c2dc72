use nccl_ep::{Handle, Stream, Tensor, TensorMut};

fn main() {}

fn step(handle: &mut Handle, mut indices: Vec<i64>) -> nccl_ep::Result<usize> {
    let topk_idx = Tensor::new(&indices, &[4, 2])?;
    let step = unsafe { handle.update_trusted(topk_idx, None, Stream::DEFAULT) }?;
    let _output = TensorMut::new(&mut indices, &[8])?;
    Ok(step.tokens())
}
