//! A recorded tile stays borrowed until the group has been issued.

use nccl_m2n::{Comm, DistTensor, DistTensorMut, Layout, Result, Runtime, Stream};

fn record(runtime: &Runtime, comm: &Comm, from: &Layout, to: &Layout) -> Result<()> {
    let mut tile = vec![0_u8; 4];
    runtime.group(|group| {
        let destination = DistTensorMut::new(&mut tile, to);
        group.reshard(comm, DistTensor::inactive(from), destination, Stream::DEFAULT)?;
        tile[0] = 1;
        Ok(())
    })
}

fn main() {}
