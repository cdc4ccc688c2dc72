//! A runtime, a communicator and a tile over stub tables.

use nccl_ext_test::stub::m2n as stub;
use nccl_ext_test::worlds::STREAM;
use nccl_m2n::Placement::{Replicate, Shard};
use nccl_m2n::{
    Agreement, Buffer, Comm, Config, DataType, DistTensor, DistTensorMut, Layout, MemorySpace,
    Mesh, Result, Runtime,
};

pub(crate) fn config(agreement: Agreement) -> Config {
    Config::new().agreement(agreement)
}

/// Ranks 0 and 1 to ranks 2 and 3.
pub(crate) fn layouts() -> (Layout, Layout) {
    let mesh = |start| Mesh::new(&[2], start).unwrap();
    let source = Layout::new(mesh(0), &[Shard(0)], &[2], DataType::Uint8).unwrap();
    (source, source.on(mesh(2), &[Replicate]).unwrap())
}

/// Rank 0 sends its tile.
pub(crate) fn send(runtime: &Runtime, comm: &Comm, tile: &Buffer<u8>) -> Result<()> {
    let (source, destination) = layouts();
    let mut to = DistTensorMut::inactive(&destination);
    runtime.reshard(comm, &DistTensor::new(tile, &source), &mut to, STREAM)
}

pub(crate) fn setup(memory: MemorySpace, agreement: Agreement) -> (Runtime, Comm, Buffer<u8>) {
    let backend = stub::backend(memory);
    let comm = stub::comm_on(backend, 4, 0);
    let runtime = Runtime::new(backend, &config(agreement)).unwrap();
    let tile = Buffer::<u8>::zeroed(&comm, 2).unwrap();
    stub::take_calls();
    (runtime, comm, tile)
}
