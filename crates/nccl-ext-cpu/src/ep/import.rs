//! Handle memory that a high-throughput update has prepared, and new handles in it.

use core::ffi::{c_int, c_uint};

use nccl_ep_sys::{
    ImportApi, ncclEpGroup_t, ncclEpHandle_t, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpTensor_t,
};
use nccl_ext_core::raw::{ncclDataType_t, ncclResult_t};

use super::group::View;
use super::handle::{self, Layout, Ready};
use super::image::{self, Facts, HEADER, Step};
use super::settings::Algorithm;
use super::topk::TopK;
use super::update::{self, HighThroughput};
use crate::entry::{Scope, entry};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

pub(crate) const TABLE: ImportApi = ImportApi { ncclExtImportHandle: import_handle };

unsafe extern "C" fn import_handle(
    handle: *mut ncclEpHandle_t,
    ep_group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    num_tokens: c_uint,
    num_topk: c_int,
    topk_idx_datatype: ncclDataType_t,
    handle_mem: *const ncclEpTensor_t,
) -> ncclResult_t {
    entry("ncclExtImportHandle", |scope| {
        let given =
            Given { tokens: num_tokens as usize, topk: num_topk, id_type: topk_idx_datatype };
        // SAFETY: the C contract: as `ncclEpInitHandle`.
        unsafe { import(scope, handle, ep_group, layout, config, &given, handle_mem) }
    })
}

/// Handle memory of the caller's, who keeps it as long as the handle (EP 1.7).
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    data: *mut u8,
    bytes: usize,
}

// SAFETY: the caller lends the memory to the handle, from whatever thread that is used.
unsafe impl Send for Memory {}
// SAFETY: it is written under the lock of the handle's state alone.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(data: *mut u8, bytes: usize) -> Self {
        Self { data, bytes }
    }

    /// Replaces what is there; an image that is too long is left out, which no handle's is.
    ///
    /// # Safety
    /// The memory is still there, and nobody else uses it meanwhile.
    unsafe fn write(self, words: &[u64]) {
        let bytes = size_of_val(words);
        if bytes <= self.bytes {
            // SAFETY: this function's contract; bytes need no alignment.
            unsafe { core::ptr::copy_nonoverlapping(words.as_ptr().cast(), self.data, bytes) };
        }
    }

    /// # Safety
    /// As [`write`](Self::write); `words` are no more than the memory has.
    unsafe fn read(self, words: &mut [u64]) {
        let bytes = size_of_val(words);
        // SAFETY: this function's contract.
        unsafe { core::ptr::copy_nonoverlapping(self.data, words.as_mut_ptr().cast(), bytes) };
    }
}

/// Whatever was prepared is not any more.
///
/// # Safety
/// The handle's memory is the caller's and still there.
pub(super) unsafe fn forget(ready: &Ready) {
    if let Some(memory) = ready.memory {
        // SAFETY: this function's contract; the caller holds the lock of the handle's state.
        unsafe { memory.write(&[0; HEADER]) };
    }
}

/// Leaves in the caller's memory what another handle needs to go on from here.
///
/// # Safety
/// As [`forget`]; the table behind `topk` is valid.
pub(super) unsafe fn prepare(
    group: &View<'_>,
    ready: &Ready,
    topk: TopK,
    state: &mut HighThroughput,
) {
    let Some(memory) = ready.memory else { return };
    let step = Step {
        layout: c_layout(ready.layout),
        alignment: ready.alignment,
        rank: group.member.rank(),
        tokens: topk.tokens,
        topk: ready.topk,
        id_type: u64::from(topk.data_type().0),
    };
    let mut words = core::mem::take(&mut state.image);
    // SAFETY: this function's contract.
    unsafe {
        image::encode(&mut words, &Facts::new(group.settings, &step), state, topk.ids());
        memory.write(&words);
    }
    state.image = words;
}

fn c_layout(layout: Layout) -> i64 {
    match layout {
        Layout::ExpertMajor => 1,
        Layout::RankMajor => 2,
        Layout::Flat => 3,
    }
}

/// What the caller says of the update.
struct Given {
    tokens: usize,
    topk: c_int,
    id_type: ncclDataType_t,
}

/// # Safety
/// The C contract of `ncclEpInitHandle`.
unsafe fn import(
    scope: &Scope,
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    given: &Given,
    memory: *const ncclEpTensor_t,
) -> Outcome {
    let ret = FailureClass::Return;
    // SAFETY: this function's contract.
    let opened = unsafe { handle::open(scope, out, group, layout, config, memory, import_only)? };
    let view = opened.group.view()?;
    require(opened.memory.is_some(), || Refusal::null(ret, "handle_mem"))?;
    let ready = handle::prepare(&view, &opened, given.topk)?;
    let memory = ready.memory.ok_or_else(|| Refusal::null(ret, "handle_mem"))?;
    let step = Step {
        layout: c_layout(ready.layout),
        alignment: ready.alignment,
        rank: view.member.rank(),
        tokens: given.tokens,
        topk: ready.topk,
        id_type: u64::from(given.id_type.0),
    };
    let facts = Facts::new(view.settings, &step);
    let mut words = vec![0; HEADER];
    // SAFETY: this function's contract; `prepare` found the memory as large as the largest image.
    unsafe { memory.read(&mut words) };
    let header = words.first_chunk().ok_or_else(|| Refusal::null(ret, "handle_mem"))?;
    let length = image::length(header, memory.bytes / size_of::<u64>())?;
    words.resize(length, 0);
    // SAFETY: as above; `length` is inside the memory.
    unsafe { memory.read(&mut words) };
    let rules = update::rules(view.settings, &ready);
    *handle::lock(&ready.high) = image::decode(&words, &facts, view.settings, &rules)?;
    // The out pointer is set only now: of a refused import nothing is left to destroy.
    // SAFETY: this function's contract: writable.
    unsafe { out.write(handle::keep(&opened.group, Some(ready))) };
    Ok(())
}

/// Low latency keeps no routing in handle memory that would be worth it.
fn import_only(group: &View<'_>) -> Outcome {
    require(group.settings.algorithm == Algorithm::HighThroughput, || {
        let rule = "only high-throughput handles are imported";
        let ret = FailureClass::Return;
        Refusal::usage(ret, "ep_group", rule, "a high-throughput group", "low latency")
    })
}
