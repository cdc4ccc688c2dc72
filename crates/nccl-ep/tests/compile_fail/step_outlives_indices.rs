use nccl_ep::{Handle, Step, Stream, Tensor};

fn main() {}

fn escape<'a>(handle: &'a mut Handle) -> nccl_ep::Result<Step<'a>> {
    let indices = vec![0_i64; 8];
    let topk_idx = Tensor::new(&indices, &[4, 2])?;
    unsafe { handle.update_trusted(topk_idx, None, Stream::DEFAULT) }
}
