//! Two entries cannot write the same tile.

use nccl_m2n::{Comm, DistTensor, DistTensorMut, Layout, Result, Runtime, Stream};

fn record(runtime: &Runtime, comm: &Comm, from: &Layout, to: &Layout) -> Result<()> {
    let mut tile = vec![0_u8; 4];
    let first = DistTensorMut::new(&mut tile, to);
    let second = DistTensorMut::new(&mut tile, to);
    runtime.group(|group| {
        group.reshard(comm, DistTensor::inactive(from), first, Stream::DEFAULT)?;
        group.reshard(comm, DistTensor::inactive(from), second, Stream::DEFAULT)
    })
}

fn main() {}
