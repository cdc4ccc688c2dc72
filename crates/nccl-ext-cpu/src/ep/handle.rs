//! Handles: sizes, creation and destruction (EP 3.1, 3.2, 3.7).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nccl_ep_sys::{
    ncclEpGroup_t, ncclEpHandle_t, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpTensor_t,
};
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use super::alloc::Block;
use super::geometry;
use super::group::{self, Group, View};
use super::image;
use super::import::Memory;
use super::low_latency::LowLatency;
use super::settings::{self, Algorithm, EmMode, Settings};
use super::structs;
use super::tensor::{Tensor, WindowOnly};
use super::update::HighThroughput;
use crate::entry::Scope;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    ExpertMajor,
    RankMajor,
    Flat,
}

/// A handle. An `ncclEpHandle_t` points to one.
pub(super) struct Handle {
    group: Arc<Group>,
    /// `None` when creation failed after the out pointer was set.
    ready: Option<Ready>,
}

/// What a handle knows since its creation, and what it learns with each step.
pub(super) struct Ready {
    pub(super) layout: Layout,
    pub(super) topk: usize,
    /// Rows that each expert's zone is a multiple of; at most 1 is none.
    pub(super) alignment: usize,
    pub(super) low: Mutex<LowLatency>,
    pub(super) high: Mutex<HighThroughput>,
    /// High throughput: the caller's handle memory. It takes a copy of what an update gives.
    pub(super) memory: Option<Memory>,
    /// Handle memory from the caller's allocator. Nothing is kept in it.
    _block: Option<Block>,
}

impl Handle {
    /// The group and the handle, unless it is what a failed creation left behind.
    pub(super) fn view(&self) -> Outcome<(View<'_>, &Ready)> {
        let view = self.group.view()?;
        let ready = self.ready.as_ref().ok_or_else(|| {
            Refusal::usage(
                FailureClass::UndefinedBehaviour,
                "handle",
                "a handle whose creation failed can only be destroyed",
                "a handle that was created with success",
                "what a failed ncclEpInitHandle left",
            )
        })?;
        Ok((view, ready))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.group.live_handles.fetch_sub(1, Ordering::AcqRel);
    }
}

/// # Safety
/// `handle` is NULL or a live handle of this backend, for as long as the result is used.
pub(super) unsafe fn live<'a>(handle: ncclEpHandle_t, class: FailureClass) -> Outcome<&'a Handle> {
    let raw: *const Handle = handle.cast_const().cast();
    // SAFETY: this function's contract.
    unsafe { raw.as_ref() }.ok_or_else(|| Refusal::null(class, "handle"))
}

/// A state's lock. A panic while it was held failed the world, so nobody works on with the state.
pub(super) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unset(layout: ncclEpLayout_t) -> Outcome {
    require(layout != ncclEpLayout_t::NCCL_EP_LAYOUT_UNSET, || {
        Refusal::argument(FailureClass::Throw, "layout", "a layout is chosen", "1 to 3", "UNSET")
    })
}

fn memory_bytes(settings: &Settings, expert_major: bool, topk: usize) -> usize {
    let bytes = match settings.algorithm {
        Algorithm::LowLatency => geometry::ll_handle_bytes(
            settings.ranks as u64,
            settings.local_experts as u64,
            settings.max_tokens as u64,
            topk as u64,
        ),
        Algorithm::HighThroughput => {
            // What an update leaves there is nearly always shorter.
            let image = image::bytes(settings, topk) as u64;
            geometry::ht_handle_bytes(settings, expert_major, topk as u64).max(image)
        }
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// # Safety
/// The C contract of `ncclEpHandleMemSize`.
pub(super) unsafe fn memory_size(
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    out: *mut usize,
    num_topk: i32,
) -> Outcome {
    let assert = FailureClass::Assert;
    // SAFETY: this function's contract.
    let group = unsafe { group::shared(group, assert)? };
    let settings = group.view()?.settings;
    require(!out.is_null(), || Refusal::null(assert, "size_out"))?;
    // SAFETY: this function's contract.
    unsafe { structs::optional(config, "config")? };
    unset(layout)?;
    let topk = usize::try_from(num_topk).ok().filter(|&topk| topk > 0).ok_or_else(|| {
        Refusal::argument(assert, "num_topk", "the number is given", ">= 1", num_topk)
    })?;
    let expert_major = layout == ncclEpLayout_t::NCCL_EP_LAYOUT_EXPERT_MAJOR;
    // SAFETY: this function's contract: writable.
    unsafe { out.write(memory_bytes(settings, expert_major, topk)) };
    Ok(())
}

/// The arguments of a handle's creation, of which the algorithm has checked nothing yet.
pub(super) struct Opened {
    pub(super) group: Arc<Group>,
    layout: Layout,
    alignment: usize,
    pub(super) memory: Option<Tensor>,
}

/// Checks what comes before the algorithm's part (EP 3.2, #1 to #6); `first` has a word before
/// the layout.
///
/// # Safety
/// The C contract of `ncclEpInitHandle`.
pub(super) unsafe fn open(
    scope: &Scope,
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    memory: *const ncclEpTensor_t,
    first: impl FnOnce(&View<'_>) -> Outcome,
) -> Outcome<Opened> {
    let assert = FailureClass::Assert;
    // SAFETY: this function's contract.
    let group = unsafe { group::shared(group, assert)? };
    require(!out.is_null(), || Refusal::null(assert, "handle"))?;
    let view = group.view()?;
    scope.enter(view.member);
    let settings = view.settings;
    // SAFETY: this function's contract.
    let config = unsafe { structs::optional(config, "config")? };
    // SAFETY: this function's contract.
    let memory = unsafe { Tensor::optional(memory, "handle_mem")? };
    unset(layout)?;
    first(&view)?;
    let layout = known_layout(settings.algorithm, layout)?;
    require(settings.experts.is_multiple_of(settings.ranks), || {
        let rule = "experts divide evenly over ranks";
        let expected = format_args!("a multiple of {}", settings.ranks).to_string();
        Refusal::argument(assert, "num_experts", rule, expected, settings.experts)
    })?;
    let mut alignment = 1;
    if settings.algorithm == Algorithm::HighThroughput && layout == Layout::ExpertMajor {
        alignment = config.map_or(0, |config| config.dispatch_output_per_expert_alignment);
        require(alignment <= 1 || alignment.is_power_of_two(), || {
            let rule = "zones are aligned to powers of two";
            let name = "dispatch_output_per_expert_alignment";
            Refusal::argument(assert, name, rule, "0, 1 or a power of two", alignment)
        })?;
    }
    Ok(Opened { group, layout, alignment, memory })
}

/// # Safety
/// The C contract of `ncclEpInitHandle`.
pub(super) unsafe fn init(
    scope: &Scope,
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    num_topk: i32,
    memory: *const ncclEpTensor_t,
) -> Outcome {
    // SAFETY: this function's contract.
    let opened = unsafe { open(scope, out, group, layout, config, memory, |_| Ok(()))? };
    // From here on the out pointer is set whatever happens (EP 3.2, #7).
    let ready = opened.group.view().and_then(|view| prepare(&view, &opened, num_topk));
    let (ready, result) = match ready {
        Ok(ready) => (Some(ready), Ok(())),
        Err(refusal) => (None, Err(refusal)),
    };
    // SAFETY: this function's contract: writable.
    unsafe { out.write(keep(&opened.group, ready)) };
    result
}

/// A handle for the caller to keep.
pub(super) fn keep(group: &Arc<Group>, ready: Option<Ready>) -> ncclEpHandle_t {
    group.live_handles.fetch_add(1, Ordering::AcqRel);
    Box::into_raw(Box::new(Handle { group: Arc::clone(group), ready })).cast()
}

fn known_layout(algorithm: Algorithm, layout: ncclEpLayout_t) -> Outcome<Layout> {
    match (algorithm, layout) {
        (_, ncclEpLayout_t::NCCL_EP_LAYOUT_EXPERT_MAJOR) => Ok(Layout::ExpertMajor),
        (Algorithm::LowLatency, ncclEpLayout_t::NCCL_EP_LAYOUT_RANK_MAJOR) => Ok(Layout::RankMajor),
        (Algorithm::HighThroughput, ncclEpLayout_t::NCCL_EP_LAYOUT_FLAT) => Ok(Layout::Flat),
        (algorithm, other) => {
            let expected = match algorithm {
                Algorithm::LowLatency => "EXPERT_MAJOR (1) or RANK_MAJOR (2)",
                Algorithm::HighThroughput => "EXPERT_MAJOR (1) or FLAT (3)",
            };
            let rule = "the algorithm has the layout";
            Err(Refusal::argument(FailureClass::Throw, "layout", rule, expected, other.0))
        }
    }
}

/// The algorithm's part of creation.
pub(super) fn prepare(group: &View<'_>, opened: &Opened, num_topk: i32) -> Outcome<Ready> {
    let settings = group.settings;
    let Opened { layout, alignment, .. } = *opened;
    let topk = match settings.algorithm {
        Algorithm::LowLatency => ll_topk(settings, layout, num_topk)?,
        Algorithm::HighThroughput => ht_topk(settings, layout, alignment, num_topk)?,
    };
    let bytes = memory_bytes(settings, layout == Layout::ExpertMajor, topk);
    let (memory, block) = match &opened.memory {
        Some(memory) => (Some(check_memory(group, memory, bytes)?), None),
        None => (None, group.alloc.allocate(bytes)?),
    };
    if let Some(masks) = group.masks {
        masks.note_handle();
    }
    Ok(Ready {
        layout,
        topk,
        alignment,
        low: Mutex::default(),
        high: Mutex::default(),
        memory,
        _block: block,
    })
}

/// EP 3.2 LL a to e.
fn ll_topk(settings: &Settings, layout: Layout, num_topk: i32) -> Outcome<usize> {
    let ret = FailureClass::Return;
    let most = settings.experts.min(32);
    let topk = usize::try_from(num_topk).ok().filter(|topk| (1..=most).contains(topk));
    let topk = topk.ok_or_else(|| {
        let expected = format_args!("1 to {most}").to_string();
        let rule = "a low-latency token has at most 32 experts, and no more than there are";
        Refusal::argument(ret, "num_topk", rule, expected, num_topk)
    })?;
    settings::check_groups(settings)?;
    let warps = geometry::ll_warps(geometry::ll_groups(settings.experts, settings.comm_sms));
    require(topk < warps, || {
        let expected = format_args!("at most {}", warps.saturating_sub(1)).to_string();
        let rule = "each expert of a token takes a warp beside the control warp";
        Refusal::usage(ret, "num_topk", rule, expected, topk)
    })?;
    let buffer = geometry::ll_buffer(settings, layout == Layout::RankMajor, topk);
    let names =
        ["dispatch send", "dispatch receive", "combine send", "combine receive"].into_iter();
    for (region, bytes) in names.zip(buffer.regions) {
        require(bytes.is_multiple_of(16), || {
            let rule = "each region of the communication buffer is a multiple of 16 bytes; \
                        a multiple of 1024 always fits";
            let found = format_args!("{bytes} bytes of {region}").to_string();
            let throw = FailureClass::Throw;
            Refusal::argument(throw, "max_token_bytes", rule, "a multiple of 16", found)
        })?;
    }
    let given = u128::from(settings.rdma_buffer_size);
    require(given == 0 || given >= buffer.total, || {
        let rule = "an explicit buffer holds every handle";
        let expected = format_args!("at least {}", buffer.total).to_string();
        Refusal::usage(ret, "rdma_buffer_size", rule, expected, given)
    })?;
    Ok(topk)
}

/// EP 3.2 HT a to d.
fn ht_topk(settings: &Settings, layout: Layout, alignment: usize, num_topk: i32) -> Outcome<usize> {
    let ret = FailureClass::Return;
    let topk = usize::try_from(num_topk)
        .ok()
        .filter(|&topk| topk > 0)
        .ok_or_else(|| Refusal::usage(ret, "num_topk", "the number is given", ">= 1", num_topk))?;
    require(settings.num_topk == 0 || topk <= settings.num_topk, || {
        let rule = "the group was created for that many";
        let expected = format_args!("at most {}", settings.num_topk).to_string();
        Refusal::usage(ret, "num_topk", rule, expected, topk)
    })?;
    let expert_major = layout == Layout::ExpertMajor;
    require(settings.num_topk > 0 || !(settings.eager && expert_major), || {
        let rule = "without a receive budget an expert-major group names its top-k";
        Refusal::usage(ret, "num_topk", rule, "num_topk in the group configuration", "none")
    })?;
    let dup = settings.em_mode != EmMode::LocalPermute;
    let worst = (settings.ranks as u64 * settings.max_tokens as u64).saturating_mul(topk as u64);
    require(!dup || settings.zero_copy_on || settings.max_recv >= worst, || {
        let rule = "a forced duplication mode stages the worst case unless zero_copy is ON";
        let expected = format_args!("at least {worst}").to_string();
        let name = "max_recv_tokens_per_rank";
        Refusal::argument(FailureClass::Throw, name, rule, expected, settings.max_recv)
    })?;
    // The vendor's padding would write past the budget (EP 4.12).
    let aligned = alignment <= 1 || settings.max_recv.is_multiple_of(alignment as u64);
    require(!(dup && expert_major && settings.drop) || aligned, || {
        let rule = "when a duplication mode drops, the budget is a multiple of the alignment";
        let expected = format_args!("a multiple of {alignment}").to_string();
        let (class, name) = (FailureClass::UndefinedBehaviour, "max_recv_tokens_per_rank");
        Refusal::argument(class, name, rule, expected, settings.max_recv)
    })?;
    Ok(topk)
}

fn check_memory(group: &View<'_>, memory: &Tensor, bytes: usize) -> Outcome<Memory> {
    let assert = FailureClass::Assert;
    memory.require_ndim(assert, 1)?;
    memory.require_type(assert, &[DataType::Uint8])?;
    require(memory.extent(0) >= bytes, || {
        let rule = "handle memory is as large as ncclEpHandleMemSize says";
        let expected = format_args!("at least {bytes} bytes").to_string();
        Refusal::argument(assert, "handle_mem", rule, expected, memory.extent(0))
    })?;
    let window_only = match group.settings.algorithm {
        Algorithm::LowLatency => WindowOnly::Undefined,
        Algorithm::HighThroughput => WindowOnly::Resolved,
    };
    Ok(Memory::new(memory.data(group.member, window_only)?, memory.extent(0)))
}

/// # Safety
/// `handle` is NULL or a live handle that nobody uses.
pub(super) unsafe fn destroy(handle: ncclEpHandle_t) -> Outcome {
    if !handle.is_null() {
        // SAFETY: this function's contract; `init` made the box.
        drop(unsafe { Box::from_raw(handle.cast::<Handle>()) });
    }
    Ok(())
}

/// Turns a failed compilation into what the vendor's library returns for it (EP 7.4).
pub(super) fn compile_failure(
    argument: &str,
    rule: &str,
    expected: String,
    found: usize,
) -> Refusal {
    Refusal::argument(FailureClass::Return, argument, rule, expected, found)
        .with_code(ncclResult_t::ncclInternalError)
}
