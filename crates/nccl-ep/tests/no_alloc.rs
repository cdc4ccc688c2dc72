//! Update, dispatch and combine allocate nothing: a counting allocator over stub tables.

use nccl_ep::{
    Algorithm, Buffer, CombineConfig, CombineInputs, CombineOutputs, DispatchConfig,
    DispatchInputs, DispatchOutputs, Error, Group, GroupConfig, HandleConfig, Layout, LayoutInfo,
    MemorySpace, OwnedStream, Stream, Tensor, TensorMut, TopK, bf16,
};

use nccl_ext_test::allocations::{CountingAllocator, allocations};
use nccl_ext_test::stub::ep as stub;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| Box::new(1)).0, 1);
    assert_eq!(allocations(|| 1).0, 0);
}

#[test]
fn low_latency_expert_major_calls_allocate_nothing() {
    let comm = stub::comm(4);
    let config =
        GroupConfig::new().num_experts(8).max_dispatch_tokens_per_rank(4).max_token_bytes(1024);
    let group = Group::create(&comm, &config).unwrap();
    let layout = Layout::ExpertMajor;
    let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None).unwrap();
    let ids = [0_i64, 1, 2, 3, 4, 5, 6, 7];
    let tokens = vec![bf16::ONE; 4 * 512];
    let weights = [1.0_f32; 8];
    let mut received = vec![bf16::ZERO; 2 * 16 * 512];
    let mut combined = vec![bf16::ZERO; 4 * 512];
    let mut counters = [0_i32; 2];
    let stream = Stream::DEFAULT;

    let (count, ()) = allocations(|| {
        let ids = Tensor::new(&ids, &[4, 2]).unwrap();
        let mut step = handle.update(ids, None, stream).unwrap();
        let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, 512]).unwrap());
        let out = TensorMut::new(&mut received, &[2, 16, 512]).unwrap();
        let mut info =
            LayoutInfo::new().expert_counters(TensorMut::new(&mut counters, &[2]).unwrap());
        let mut outputs = DispatchOutputs::new(out);
        let config = DispatchConfig::new();
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, stream).unwrap();
        let inputs = CombineInputs::new(Tensor::new(&received, &[2, 16, 512]).unwrap())
            .routing_weights(Tensor::new(&weights, &[4, 2]).unwrap());
        let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[4, 512]).unwrap());
        step.combine(&inputs, &mut outputs, &CombineConfig::new(), stream).unwrap();
    });
    assert_eq!(count, 0);
    let expected = [
        "ncclEpCreateGroup",
        "ncclEpInitHandle",
        "ncclEpUpdateHandle",
        "ncclEpDispatch",
        "ncclEpCombine",
    ];
    assert_eq!(stub::take_calls(), expected);
}

#[test]
fn high_throughput_flat_calls_allocate_nothing() {
    let comm = stub::comm(4);
    let config = GroupConfig::new()
        .algorithm(Algorithm::HighThroughput)
        .num_experts(8)
        .max_dispatch_tokens_per_rank(4)
        .max_recv_tokens_per_rank(16)
        .max_token_bytes(1024);
    let group = Group::create(&comm, &config).unwrap();
    let mut handle =
        group.init_handle(Layout::Flat, &HandleConfig::new(), TopK::N(2), None).unwrap();
    let ids = [0_i32, 1, 2, 3, 4, 5, 6, 7];
    let tokens = vec![bf16::ONE; 4 * 512];
    let weights = [1.0_f32; 8];
    let mut received = vec![bf16::ZERO; 16 * 512];
    let mut received_weights = [0.0_f32; 32];
    let mut received_ids = [0_i64; 32];
    let mut combined = vec![bf16::ZERO; 4 * 512];
    let mut total = [0_i32];
    let stream = Stream::DEFAULT;

    let (count, ()) = allocations(|| {
        let ids = Tensor::new(&ids, &[4, 2]).unwrap();
        let mut info =
            LayoutInfo::new().recv_total_counter(TensorMut::new(&mut total, &[1]).unwrap());
        let mut step = handle.update(ids, Some(&mut info), stream).unwrap();
        let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, 512]).unwrap())
            .topk_weights(Tensor::new(&weights, &[4, 2]).unwrap());
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut received, &[16, 512]).unwrap())
            .topk_weights(TensorMut::new(&mut received_weights, &[16, 2]).unwrap())
            .topk_idx(TensorMut::new(&mut received_ids, &[16, 2]).unwrap());
        step.dispatch(&inputs, &mut outputs, None, &DispatchConfig::new(), stream).unwrap();
        let inputs = CombineInputs::new(Tensor::new(&received, &[16, 512]).unwrap());
        let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[4, 512]).unwrap());
        step.combine(&inputs, &mut outputs, &CombineConfig::new(), stream).unwrap();
    });
    assert_eq!(count, 0);
    let called = stub::take_calls();
    assert_eq!(called[2..], ["ncclEpUpdateHandle", "ncclEpDispatch", "ncclEpCombine"]);
}

/// Memory of a device: ids are copied by a kernel, and what it found is read at the next call.
#[test]
fn ids_that_a_kernel_looks_at_allocate_nothing() {
    let comm = stub::comm_on(stub::backend(MemorySpace::Device), 4);
    let config =
        GroupConfig::new().num_experts(8).max_dispatch_tokens_per_rank(4).max_token_bytes(1024);
    let group = Group::create(&comm, &config).unwrap();
    let layout = Layout::ExpertMajor;
    let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None).unwrap();
    let ids = Buffer::from_slice(&comm, &[0_i64, 1, 2, 3, 4, 4, 6, 8]).unwrap();
    let stream = OwnedStream::new(&comm).unwrap();
    let mut told = None;
    let mut round = || {
        let ids = Tensor::new(&ids, &[4, 2]).unwrap();
        let mut step = handle.update(ids, None, stream.stream()).unwrap();
        told = step.check(stream.stream()).err();
    };
    round(); // the stream is remembered from now on
    let (count, ()) = allocations(round);
    assert_eq!(count, 0);
    assert!(matches!(told, Some(Error::Ids { count: 2, token: 2, choice: 1 })), "{told:?}");
}
