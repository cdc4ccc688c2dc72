//! Handles in memory of the caller's, and importing them.

use std::ptr::{null, null_mut};

use nccl_ep_sys::{
    ImportApi, VersionedStruct, ncclEpGroupConfig_t, ncclEpHandleConfig_t, ncclEpLayout_t,
};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, DataType, Element};
use nccl_ext_cpu::backend;

use super::super::SUCCESS;
use super::{
    Fixture, HIGH_THROUGHPUT, HT_HIDDEN, HighThroughputRank, Received, TestGroup, TestHandle,
    TestTensor, ZERO_COPY_ON, api, assert_ok, update_handle,
};

/// A handle and the memory it lives in.
#[derive(Debug)]
pub struct HandleInMemory {
    pub handle: TestHandle,
    pub memory: TestTensor<u8>,
    pub alignment: usize,
}

/// What an import must be told, since the memory does not hold it.
#[derive(Debug, Clone, Copy)]
pub struct ImportState {
    pub tokens: u32,
    pub topk: i32,
    pub id_type: DataType,
}

/// Bytes that a handle of the group needs.
#[track_caller]
pub fn handle_memory_size(group: &TestGroup, layout: ncclEpLayout_t, topk: usize) -> usize {
    let mut bytes = 0;
    let size = api().ncclEpHandleMemSize;
    // SAFETY: the group is live, and `bytes` can be written.
    assert_ok(unsafe { size(group.raw, layout, null(), &mut bytes, topk as i32) });
    bytes
}

pub fn filled_memory(bytes: usize, fill: u8) -> TestTensor<u8> {
    TestTensor::filled(&[bytes], fill)
}

impl HandleInMemory {
    /// In as much memory as it needs, zeroed.
    #[track_caller]
    pub fn init(group: &TestGroup, layout: ncclEpLayout_t, topk: usize, alignment: usize) -> Self {
        let memory = filled_memory(handle_memory_size(group, layout, topk), 0);
        Self::init_in(memory, group, layout, topk, alignment)
    }

    #[track_caller]
    pub fn init_in(
        memory: TestTensor<u8>,
        group: &TestGroup,
        layout: ncclEpLayout_t,
        topk: usize,
        alignment: usize,
    ) -> Self {
        let (code, this) = Self::try_init(memory, group, layout, topk, alignment);
        assert_ok(code);
        this
    }

    /// The call's code, and the handle, refused or not.
    pub fn try_init(
        mut memory: TestTensor<u8>,
        group: &TestGroup,
        layout: ncclEpLayout_t,
        topk: usize,
        alignment: usize,
    ) -> (ncclResult_t, Self) {
        let mut config = ncclEpHandleConfig_t::init();
        config.dispatch_output_per_expert_alignment = alignment;
        let mut raw = null_mut();
        let (init, given) = (api().ncclEpInitHandle, memory.descriptor());
        // SAFETY: the group is live, and the memory, which is refused if it is too small, moves into
        // the result, which keeps it with the handle.
        let code = unsafe { init(&mut raw, group.raw, layout, &config, topk as i32, given) };
        (code, Self { handle: TestHandle { raw, layout, topk }, memory, alignment })
    }

    #[track_caller]
    pub fn update<T: Element>(&self, ids: &mut TestTensor<T>) {
        assert_ok(update_handle(&self.handle, ids, None));
    }

    /// The memory's bytes, elsewhere.
    pub fn copy(&self) -> TestTensor<u8> {
        TestTensor::new(&[self.memory.data.len()], self.memory.data.clone())
    }

    /// The call, and a handle where it succeeds.
    pub fn try_import(
        mut memory: TestTensor<u8>,
        group: &TestGroup,
        layout: ncclEpLayout_t,
        alignment: usize,
        state: ImportState,
    ) -> (ncclResult_t, Option<Self>) {
        let mut config = ncclEpHandleConfig_t::init();
        config.dispatch_output_per_expert_alignment = alignment;
        let mut raw = null_mut();
        let ImportState { tokens, topk, id_type } = state;
        let (id_type, given) = (id_type.as_raw(), memory.descriptor());
        let import = backend().extension::<ImportApi>().unwrap().ncclExtImportHandle;
        // SAFETY: the group is live; the memory is refused, or moves into the result with the
        // handle.
        let code =
            unsafe { import(&mut raw, group.raw, layout, &config, tokens, topk, id_type, given) };
        if code != SUCCESS {
            assert!(raw.is_null(), "a refused import leaves nothing behind");
            return (code, None);
        }
        let handle = TestHandle { raw, layout, topk: topk as usize };
        (code, Some(Self { handle, memory, alignment }))
    }

    /// A handle in a copy of this one's memory.
    #[track_caller]
    pub fn import(&self, group: &TestGroup, tokens: usize, id_type: DataType) -> Self {
        let state = ImportState { tokens: tokens as u32, topk: self.handle.topk as i32, id_type };
        let (copy, layout) = (self.copy(), self.handle.layout);
        let (code, imported) = Self::try_import(copy, group, layout, self.alignment, state);
        assert_ok(code);
        imported.unwrap()
    }
}

/// What a dispatch received, and the sums of its combine.
#[derive(Debug, PartialEq)]
pub struct RoundTrip {
    pub received: Received,
    pub combined: Vec<f32>,
}

/// A dispatch and a combine of what it received through a handle, with windows where the group
/// wants them.
#[track_caller]
pub fn round_trip(
    comm: &Comm,
    ht: &HighThroughputRank,
    handle: &TestHandle,
    rows: usize,
    windows: bool,
) -> RoundTrip {
    let mut call = ht.dispatch_into(rows);
    if windows {
        call = call.with_output_window(comm);
    }
    assert_ok(call.call(handle));
    let received = Received::of(call);
    let mut call = ht.combine_of(&received.rows);
    if windows {
        call = call.with_input_window(comm);
    }
    assert_ok(call.call(handle));
    RoundTrip { received, combined: super::row_values(&call.out.unwrap().data, HT_HIDDEN) }
}

/// The same ids in 32 bits.
pub fn int32_ids(ids: &TestTensor<i64>, topk: usize) -> TestTensor<i32> {
    let data: Vec<_> = ids.data.iter().map(|&id| id as i32).collect();
    TestTensor::new(&[data.len() / topk, topk], data)
}

/// Imports a prepared handle on every rank and compares what both do, with both types of ids.
#[track_caller]
pub fn assert_imported_does_as_original(
    comm: &Comm,
    fixture: Fixture,
    layout: ncclEpLayout_t,
    alignment: usize,
    change: impl Fn(&mut ncclEpGroupConfig_t),
) {
    let ht = HighThroughputRank::fresh(comm, fixture, layout, alignment, &change);
    let mut config = fixture.config(HIGH_THROUGHPUT, HT_HIDDEN);
    change(&mut config);
    let windows = config.zero_copy == ZERO_COPY_ON;
    // Every token on one rank and padding: more than any fixture needs.
    let rows = (config.max_recv_tokens_per_rank as usize).max(64);
    let mut ids = fixture.ids(comm.rank());
    let tokens = ids.data.len() / fixture.topk;
    for id_type in [DataType::Int32, DataType::Int64] {
        let original = HandleInMemory::init(&ht.group, layout, fixture.topk, alignment);
        match id_type {
            DataType::Int32 => original.update(&mut int32_ids(&ids, fixture.topk)),
            _ => original.update(&mut ids),
        }
        let imported = original.import(&ht.group, tokens, id_type);
        let expected = round_trip(comm, &ht, &original.handle, rows, windows);
        // The import stands on its own memory.
        drop(original);
        for turn in ["once", "twice"] {
            let found = round_trip(comm, &ht, &imported.handle, rows, windows);
            assert_eq!(found, expected, "{id_type} {layout:?}, {turn}");
        }
    }
}
