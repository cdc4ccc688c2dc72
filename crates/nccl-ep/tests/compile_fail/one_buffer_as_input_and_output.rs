use nccl_ep::{CombineInputs, CombineOutputs, Tensor, TensorMut, bf16};

fn main() {}

fn alias(rows: &mut Vec<bf16>) -> nccl_ep::Result<()> {
    let inputs = CombineInputs::new(Tensor::new(rows, &[4, 512])?);
    let outputs = CombineOutputs::new(TensorMut::new(rows, &[4, 512])?);
    println!("{inputs:?} {outputs:?}");
    Ok(())
}
