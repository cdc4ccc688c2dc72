//! Handles in memory of the caller's, and importing them.

use std::ptr::null_mut;

use nccl_ep_sys::*;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, DataType, Element, bf16};
use nccl_ext_cpu::backend;

use super::*;

/// A handle and the memory it lives in.
pub struct Lodger {
    pub handle: Handle,
    pub memory: Ten<u8>,
    pub alignment: usize,
}

/// What the memory does not hold.
#[derive(Clone, Copy)]
pub struct State {
    pub tokens: u32,
    pub topk: i32,
    pub id_type: DataType,
}

pub fn memory_size(group: &Group, layout: ncclEpLayout_t, topk: usize) -> usize {
    let mut bytes = 0;
    let call = api().ncclEpHandleMemSize;
    // SAFETY: the group is live, and `bytes` can be written.
    ok(unsafe { call(group.raw, layout, null(), &mut bytes, topk as i32) });
    bytes
}

pub fn memory(bytes: usize, fill: u8) -> Ten<u8> {
    Ten::filled(&[bytes], fill)
}

impl Lodger {
    #[track_caller]
    pub fn init(group: &Group, layout: ncclEpLayout_t, topk: usize, alignment: usize) -> Self {
        Self::in_memory(memory(memory_size(group, layout, topk), 0), group, layout, topk, alignment)
    }

    #[track_caller]
    pub fn in_memory(
        mut memory: Ten<u8>,
        group: &Group,
        layout: ncclEpLayout_t,
        topk: usize,
        alignment: usize,
    ) -> Self {
        let mut config = ncclEpHandleConfig_t::init();
        config.dispatch_output_per_expert_alignment = alignment;
        let mut raw = null_mut();
        let call = api().ncclEpInitHandle;
        // SAFETY: the group is live, and the memory moves into the lodger, which keeps it with the
        // handle.
        ok(unsafe { call(&mut raw, group.raw, layout, &config, topk as i32, memory.d()) });
        Self { handle: Handle { raw, layout, topk }, memory, alignment }
    }

    #[track_caller]
    pub fn update<T: Element>(&self, ids: &mut Ten<T>) {
        ok(update_with(&self.handle, ids, null()));
    }

    pub fn copy(&self) -> Ten<u8> {
        Ten::new(&[self.memory.data.len()], self.memory.data.clone())
    }

    /// The call, and a handle where it succeeds.
    pub fn try_import(
        mut memory: Ten<u8>,
        group: &Group,
        layout: ncclEpLayout_t,
        alignment: usize,
        state: State,
    ) -> (ncclResult_t, Option<Self>) {
        let mut config = ncclEpHandleConfig_t::init();
        config.dispatch_output_per_expert_alignment = alignment;
        let mut raw = null_mut();
        let State { tokens, topk, id_type } = state;
        let (id_type, given) = (id_type.as_raw(), memory.d());
        let call = backend().extension::<ImportApi>().unwrap().ncclExtImportHandle;
        // SAFETY: the group is live; the memory is refused, or moves into the lodger with the
        // handle.
        let code =
            unsafe { call(&mut raw, group.raw, layout, &config, tokens, topk, id_type, given) };
        if code != OK {
            assert!(raw.is_null(), "a refused import leaves nothing behind");
            return (code, None);
        }
        let handle = Handle { raw, layout, topk: topk as usize };
        (code, Some(Self { handle, memory, alignment }))
    }

    /// A handle in a copy of this one's memory.
    #[track_caller]
    pub fn import(&self, group: &Group, tokens: usize, id_type: DataType) -> Self {
        let state = State { tokens: tokens as u32, topk: self.handle.topk as i32, id_type };
        let (copy, layout) = (self.copy(), self.handle.layout);
        let (code, imported) = Self::try_import(copy, group, layout, self.alignment, state);
        ok(code);
        imported.unwrap()
    }
}

/// A dispatch and a combine of what it received through a handle, with windows where the group
/// wants them.
#[track_caller]
pub fn round(comm: &Comm, ht: &Ht, handle: &Handle, rows: usize, windows: bool) -> Round {
    let mut call = ht.dispatch_into(rows);
    if windows {
        call.out_tokens = call.out_tokens.map(|tensor| window(comm, tensor));
    }
    ok(call.call(handle));
    let received = Received::of(call);
    let mut call = ht.combine_of(&received.rows);
    if windows {
        call.tokens = call.tokens.map(|tensor| window(comm, tensor));
    }
    ok(call.call(handle));
    let combined = values(&call.out.unwrap().data, H);
    Round { received, combined }
}

#[derive(Debug, PartialEq)]
pub struct Round {
    pub received: Received,
    pub combined: Vec<f32>,
}

/// The same ids in 32 bits.
pub fn narrow(ids: &Ten<i64>, topk: usize) -> Ten<i32> {
    let data: Vec<_> = ids.data.iter().map(|&id| id as i32).collect();
    Ten::new(&[data.len() / topk, topk], data)
}

/// Imports a prepared handle on every rank and compares what both do, with both types of ids.
#[track_caller]
pub fn imported_does_as_original(
    comm: &Comm,
    fixture: Fixture,
    layout: ncclEpLayout_t,
    alignment: usize,
    change: impl Fn(&mut ncclEpGroupConfig_t),
) {
    let ht = Ht::fresh(comm, fixture, layout, alignment, &change);
    let mut config = fixture.config(HT, H);
    change(&mut config);
    let windows = config.zero_copy == ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;
    // Every token on one rank and padding: more than any fixture needs.
    let rows = (config.max_recv_tokens_per_rank as usize).max(64);
    let mut ids = fixture.ids(comm.rank());
    let tokens = ids.data.len() / fixture.topk;
    for id_type in [DataType::Int32, DataType::Int64] {
        let original = Lodger::init(&ht.group, layout, fixture.topk, alignment);
        match id_type {
            DataType::Int32 => original.update(&mut narrow(&ids, fixture.topk)),
            _ => original.update(&mut ids),
        }
        let imported = original.import(&ht.group, tokens, id_type);
        let expected = round(comm, &ht, &original.handle, rows, windows);
        // The import stands on its own memory.
        drop(original);
        let found = round(comm, &ht, &imported.handle, rows, windows);
        assert_eq!(found, expected, "{id_type} {layout:?}");
        assert_eq!(round(comm, &ht, &imported.handle, rows, windows), expected, "the second time");
    }
}

pub fn bf(x: f32) -> bf16 {
    bf16::from_f32(x)
}
