//! What is read cannot be written by the same call.

use nccl_m2n::{Comm, DistTensor, DistTensorMut, Layout, Result, Runtime, Stream};

fn copy(runtime: &Runtime, comm: &Comm, layout: &Layout) -> Result<()> {
    let mut tile = vec![0_u8; 4];
    let source = DistTensor::new(&tile, layout);
    let mut destination = DistTensorMut::new(&mut tile, layout);
    runtime.reshard(comm, &source, &mut destination, Stream::DEFAULT)
}

fn main() {}
