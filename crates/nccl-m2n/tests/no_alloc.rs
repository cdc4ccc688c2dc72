//! A reshard allocates nothing: a counting allocator over stub tables.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Instant;

use nccl_ext_test::allocations::{CountingAllocator, allocations};
use nccl_ext_test::stub::m2n as stub;
use nccl_m2n::{
    Agreement, Buffer, Config, DataType, DistTensor, DistTensorMut, Layout, MemorySpace, Mesh,
    Placement, Runtime, Stream, Window,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A [4096, 4096] matrix from rows on four ranks to columns on two.
fn layouts() -> (Layout, Layout) {
    let mesh = |ranks, start| Mesh::new(&[ranks], start).unwrap();
    let rows = [Placement::Shard(0)];
    let source = Layout::from_global(mesh(4, 0), &rows, &[64, 64], DataType::Bfloat16).unwrap();
    (source, source.on(mesh(2, 4), &[Placement::Shard(-1)]).unwrap())
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| Box::new(1)).0, 1);
    assert_eq!(allocations(|| 1).0, 0);
}

#[test]
fn calls_allocate_nothing_once_their_layouts_are_known() {
    for (memory, agreement) in [
        (MemorySpace::Host, Agreement::PerShape),
        (MemorySpace::Host, Agreement::Off),
        (MemorySpace::Device, Agreement::PerShape),
    ] {
        let backend = stub::backend(memory);
        let comm = stub::comm_on(backend, 6, 0);
        let runtime = Runtime::new(backend, &Config::new().agreement(agreement)).unwrap();
        let (source, destination) = layouts();
        let tile = Buffer::<nccl_m2n::bf16>::zeroed(&comm, 16 * 64).unwrap();
        let call = || {
            let from = DistTensor::new(&tile, &source);
            let mut to = DistTensorMut::inactive(&destination);
            runtime.reshard(&comm, &from, &mut to, Stream::DEFAULT).unwrap();
            let window = Window::NONE;
            runtime.reshard_with_window(&comm, window, &from, &mut to, Stream::DEFAULT).unwrap();
        };
        call();
        stub::take_calls();
        assert_eq!(allocations(call).0, 0, "{memory}, {agreement:?}");
        assert_eq!(stub::take_calls(), ["ncclReshard", "ncclReshardWithWindow"]);
        assert_eq!(stub::passed(), [true, false]);
    }
}

/// Not a test: what a call costs over one that does nothing. Run with
/// `cargo test --release -p nccl-m2n --test no_alloc -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn overhead() {
    for memory in [MemorySpace::Host, MemorySpace::Device] {
        let backend = stub::backend(memory);
        let comm = stub::comm_on(backend, 6, 0);
        let runtime = Runtime::new(backend, &Config::new()).unwrap();
        let (source, destination) = layouts();
        let tile = Buffer::<nccl_m2n::bf16>::zeroed(&comm, 16 * 64).unwrap();
        let mut best = f64::INFINITY;
        for _ in 0..200 {
            let start = Instant::now();
            for _ in 0..1000 {
                let from = DistTensor::new(&tile, &source);
                let mut to = DistTensorMut::inactive(&destination);
                runtime.reshard(&comm, &from, &mut to, Stream::DEFAULT).unwrap();
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e6);
            stub::take_calls();
        }
        println!("{memory}: {best:.0} ns a call");
    }
}
