//! A group is issued after its function has returned: tiles made in it would be gone.

use nccl_m2n::{Comm, DistTensor, DistTensorMut, Layout, Result, Runtime, Stream};

fn record(runtime: &Runtime, comm: &Comm, from: &Layout, to: &Layout) -> Result<()> {
    runtime.group(|group| {
        let tile = vec![0_u8; 4];
        let source = DistTensor::new(&tile, from);
        group.reshard(comm, source, DistTensorMut::inactive(to), Stream::DEFAULT)
    })
}

fn main() {}
