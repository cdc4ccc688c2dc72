//! Calls of a group on several streams are ordered by the library (case A2), over a driver that writes
//! down what orders streams.

use core::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use nccl_ep::{
    Buffer, CombineConfig, CombineInputs, CombineOutputs, Comm, DeviceAllocator, DeviceBuffer,
    DeviceBufferMut, DispatchConfig, DispatchInputs, DispatchOutputs, Error, Group, GroupConfig,
    Handle, HandleConfig, HandleMemory, Layout, LayoutInfo, MemorySpace, OwnedStream, Result,
    Stream, Tensor, TensorMut, TopK, bf16,
};
use nccl_ext_core::RawBuffer;
use nccl_ext_cpu::run_ranks;
use nccl_ext_test::stub::OrderCall::{self, Recorded, Waits};
use nccl_ext_test::stub::{ep as stub, set_trapped, take_order};

const HIDDEN: usize = 512;

fn setup() -> (Comm, Group, Handle) {
    setup_with(Group::create)
}

fn setup_with(create: impl FnOnce(&Comm, &GroupConfig) -> Result<Group>) -> (Comm, Group, Handle) {
    let comm = stub::comm_on(stub::backend(MemorySpace::Device), 4);
    let config =
        GroupConfig::new().num_experts(8).max_dispatch_tokens_per_rank(4).max_token_bytes(1024);
    let group = create(&comm, &config).unwrap();
    let layout = Layout::ExpertMajor;
    let handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None).unwrap();
    (comm, group, handle)
}

struct Buffers {
    ids: Buffer<i64>,
    tokens: Buffer<bf16>,
    weights: Buffer<f32>,
    received: Buffer<bf16>,
    counters: Buffer<i32>,
    combined: Buffer<bf16>,
}

impl Buffers {
    fn new(comm: &Comm) -> Self {
        Self {
            ids: Buffer::from_slice(comm, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap(),
            tokens: Buffer::zeroed(comm, 4 * HIDDEN).unwrap(),
            weights: Buffer::zeroed(comm, 8).unwrap(),
            received: Buffer::zeroed(comm, 2 * 16 * HIDDEN).unwrap(),
            counters: Buffer::zeroed(comm, 2).unwrap(),
            combined: Buffer::zeroed(comm, 4 * HIDDEN).unwrap(),
        }
    }

    /// A round; gives what the dispatch ordered, and what the combine did.
    fn round(&mut self, handle: &mut Handle, streams: [Stream<'_>; 2]) -> [Vec<OrderCall>; 2] {
        let [first, second] = streams;
        take_order();
        let ids = Tensor::new(&self.ids, &[4, 2]).unwrap();
        let mut step = handle.update(ids, None, first).unwrap();
        let inputs = DispatchInputs::new(Tensor::new(&self.tokens, &[4, HIDDEN]).unwrap());
        let received = TensorMut::new(&mut self.received, &[2, 16, HIDDEN]).unwrap();
        let counters = TensorMut::new(&mut self.counters, &[2]).unwrap();
        let mut info = LayoutInfo::new().expert_counters(counters);
        let mut outputs = DispatchOutputs::new(received);
        let config = DispatchConfig::new();
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, first).unwrap();
        let dispatched = take_order();
        let inputs = CombineInputs::new(Tensor::new(&self.received, &[2, 16, HIDDEN]).unwrap())
            .routing_weights(Tensor::new(&self.weights, &[4, 2]).unwrap());
        let combined = TensorMut::new(&mut self.combined, &[4, HIDDEN]).unwrap();
        let mut outputs = CombineOutputs::new(combined);
        step.combine(&inputs, &mut outputs, &CombineConfig::new(), second).unwrap();
        [dispatched, take_order()]
    }
}

fn address(stream: &OwnedStream) -> usize {
    stream.stream().as_raw().addr()
}

#[test]
fn rounds_on_one_stream_of_ours_add_nothing() {
    let (comm, _group, mut handle) = setup();
    let mut buffers = Buffers::new(&comm);
    let stream = OwnedStream::new(&comm).unwrap();
    for _ in 0..3 {
        let added = buffers.round(&mut handle, [stream.stream(); 2]);
        assert_eq!(added, [[], []]);
    }
}

/// Case A2: the group, the received rows and the handle's copy of the ids come from the dispatch, so the
/// combine waits for all three.
#[test]
fn a_combine_on_another_stream_waits_for_the_dispatch() {
    let (comm, _group, mut handle) = setup();
    let mut buffers = Buffers::new(&comm);
    let [a, b, c] = [(); 3].map(|()| OwnedStream::new(&comm).unwrap());
    let [dispatched, combined] = buffers.round(&mut handle, [a.stream(), b.stream()]);
    assert_eq!(dispatched, []);
    let (a, b) = (address(&a), address(&b));
    assert_eq!(combined, [[Recorded(a), Waits(b)]; 3].concat());
    // The ids are overwritten from a third stream, after whatever reads them.
    buffers.ids.write(&[1; 8], c.stream()).unwrap();
    let written = take_order();
    let c = address(&c);
    assert_eq!(written[..2], [Recorded(a), Waits(c)]);
    // So are the rows that the combine reads: both their uses are waited for.
    buffers.received.fill_bytes(0, Stream::DEFAULT).unwrap();
    assert_eq!(take_order(), [Recorded(b), Waits(0), Recorded(a), Waits(0)]);
}

#[test]
fn drops_wait_for_the_streams_that_used_what_is_dropped() {
    let (comm, _group, mut handle) = setup();
    let mut buffers = Buffers::new(&comm);
    let [a, b] = [(); 2].map(|()| OwnedStream::new(&comm).unwrap());
    buffers.round(&mut handle, [a.stream(), b.stream()]);
    let Buffers { tokens, counters, combined, .. } = buffers;
    drop((tokens, counters));
    assert_eq!(take_order(), [Recorded(address(&a)); 2]);
    drop(combined);
    assert_eq!(take_order(), [Recorded(address(&b))]);
}

#[test]
fn a_group_ends_when_its_last_work_is_done() {
    let (comm, group, mut handle) = setup();
    let stream = OwnedStream::new(&comm).unwrap();
    Buffers::new(&comm).round(&mut handle, [stream.stream(); 2]);
    take_order();
    assert!(handle.destroy().unwrap().is_none());
    assert_eq!(take_order(), [Recorded(address(&stream))], "the copy of the ids is waited for");
    group.destroy().unwrap();
    assert_eq!(take_order(), [Recorded(address(&stream))]);
}

/// No memory at all.
struct Refusing;

// SAFETY: it gives none.
unsafe impl DeviceAllocator for Refusing {
    fn allocate(&self, _: usize) -> Option<NonNull<c_void>> {
        None
    }

    unsafe fn free(&self, _: NonNull<c_void>) {}
}

#[test]
fn memory_of_an_allocator_goes_back_when_the_groups_work_is_done() {
    let create = |comm: &Comm, config: &GroupConfig| {
        Group::create_with_allocator(comm, config, Arc::new(Refusing))
    };
    let (comm, _group, mut handle) = setup_with(create);
    let stream = OwnedStream::new(&comm).unwrap();
    Buffers::new(&comm).round(&mut handle, [stream.stream(); 2]);
    take_order();
    drop(handle);
    assert_eq!(take_order(), [Recorded(address(&stream)); 2], "the group's work, and the ids");
}

/// Case A11: after a trap the library's destroy functions end the process. They are not called.
#[test]
fn nothing_native_is_destroyed_after_a_trap() {
    let (comm, group, mut handle) = setup();
    let stream = OwnedStream::new(&comm).unwrap();
    Buffers::new(&comm).round(&mut handle, [stream.stream(); 2]);
    stub::take_calls();
    set_trapped(true);
    let trapped = |error: &Error| matches!(error, Error::Driver { code: 719, .. });
    let error = handle.destroy().map(drop).unwrap_err();
    assert!(trapped(&error), "{error}");
    let refused = group.destroy().unwrap_err();
    assert!(trapped(&refused.error), "{refused}");
    assert!(refused.value.is_none() && comm.is_marked_for_abort());
    assert_eq!(stub::take_calls(), [] as [&str; 0], "left behind");
    set_trapped(false);
}

/// Memory whose owner does not take part in order.
struct Plain(Buffer<u8>);

// SAFETY: the buffer's, which is never touched here: the library is a stub.
unsafe impl DeviceBuffer for Plain {
    fn raw(&self) -> RawBuffer {
        self.0.raw()
    }
}

// SAFETY: as above.
unsafe impl DeviceBufferMut for Plain {
    fn raw_mut(&mut self) -> RawBuffer {
        self.0.raw_mut()
    }
}

#[test]
fn handle_memory_is_ordered_by_its_hooks_and_waited_for_without() {
    for hooks in [true, false] {
        let (comm, group, handle) = setup();
        drop(handle);
        let layout = Layout::ExpertMajor;
        let config = HandleConfig::new();
        let bytes = group.handle_mem_size(layout, &config, TopK::N(2)).unwrap();
        let memory = Buffer::<u8>::zeroed(&comm, bytes).unwrap();
        let memory: HandleMemory = if hooks { Box::new(memory) } else { Box::new(Plain(memory)) };
        let mut handle = group.init_handle(layout, &config, TopK::N(2), Some(memory)).unwrap();
        let stream = OwnedStream::new(&comm).unwrap();
        Buffers::new(&comm).round(&mut handle, [stream.stream(); 2]);
        take_order();
        let memory = handle.destroy().unwrap().unwrap();
        let waited = [Recorded(address(&stream))];
        // The copy of the ids is waited for in any case.
        assert_eq!(take_order(), if hooks { waited.to_vec() } else { [&waited[..]; 2].concat() });
        drop(memory);
        assert_eq!(take_order(), if hooks { &waited[..] } else { &[][..] });
    }
}

#[test]
fn after_an_abort_no_call_reaches_the_library() {
    let (comm, group, mut handle) = setup();
    let buffers = Buffers::new(&comm);
    comm.abort("rank 1 is dead");
    stub::take_calls();
    let ids = Tensor::new(&buffers.ids, &[4, 2]).unwrap();
    let error = handle.update(ids, None, Stream::DEFAULT).unwrap_err();
    assert!(
        matches!(&error, Error::Poisoned { cause } if cause.to_string() == "rank 1 is dead"),
        "{error}"
    );
    drop((handle, group));
    assert_eq!(stub::take_calls(), [""; 0]);
}

/// Case A2 with real work, delayed and interleaved in several ways: the deferred backend would name the
/// race.
#[test]
fn rounds_over_three_streams_are_right_whatever_the_seed() {
    for seed in 0..10 {
        let config = nccl_ext_test::worlds::config().deferred(seed);
        let results = run_ranks(2, &config, |comm: Comm| {
            let config = GroupConfig::new()
                .num_experts(4)
                .max_dispatch_tokens_per_rank(8)
                .max_token_bytes(1024);
            let group = Group::create(&comm, &config)?;
            let layout = Layout::ExpertMajor;
            let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None)?;
            let mut buffers = Buffers::new(&comm);
            buffers.tokens = Buffer::from_slice(&comm, &vec![bf16::ONE; 4 * HIDDEN])?;
            buffers.weights = Buffer::from_slice(&comm, &[0.5, 1.5, 0.5, 1.5, 0.5, 1.5, 0.5, 1.5])?;
            let [a, b, c] = [(); 3].map(|()| OwnedStream::new(&comm).unwrap());
            for ids in [[0, 1, 2, 3, 0, 2, 1, 3], [3, 2, 1, 0, 3, 1, 2, 0]] {
                buffers.ids.write(&ids, c.stream())?;
                buffers.round(&mut handle, [a.stream(), b.stream()]);
            }
            buffers.ids.write(&[-1; 8], c.stream())?;
            let Buffers { combined, .. } = buffers;
            let combined = combined.to_vec(c.stream())?;
            drop(handle);
            group.destroy()?;
            Ok::<_, Error>(combined)
        });
        for combined in results {
            assert_eq!(combined.unwrap(), vec![bf16::from_f32(2.0); 4 * HIDDEN], "seed {seed}");
        }
    }
}
