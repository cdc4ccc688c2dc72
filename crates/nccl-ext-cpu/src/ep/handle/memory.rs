//! Handle memory of the caller's: its size (EP 3.1), and what is refused.

use nccl_ep_sys::{ncclEpGroup_t, ncclEpHandleConfig_t, ncclEpLayout_t};
use nccl_ext_core::DataType;

use crate::ep::group::{self, View};
use crate::ep::ht::{HandleMemory, image_bytes};
use crate::ep::settings::{Algorithm, Settings, ht_handle_bytes, ll_handle_bytes};
use crate::ep::structs;
use crate::ep::tensor::{Tensor, WindowOnly};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

pub(super) fn check_layout_is_set(layout: ncclEpLayout_t) -> Outcome {
    require(layout != ncclEpLayout_t::NCCL_EP_LAYOUT_UNSET, || {
        Refusal::argument(FailureClass::Throw, "layout", "a layout is chosen", "1 to 3", "UNSET")
    })
}

pub(super) fn memory_bytes(settings: &Settings, expert_major: bool, topk: usize) -> usize {
    let bytes = match settings.algorithm {
        Algorithm::LowLatency => ll_handle_bytes(
            settings.ranks as u64,
            settings.local_experts as u64,
            settings.max_tokens as u64,
            topk as u64,
        ),
        Algorithm::HighThroughput => {
            // What an update leaves there is nearly always shorter.
            let image = image_bytes(settings, topk) as u64;
            ht_handle_bytes(settings, expert_major, topk as u64).max(image)
        }
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// # Safety
/// The C contract of `ncclEpHandleMemSize`.
pub(crate) unsafe fn memory_size(
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
    check_layout_is_set(layout)?;
    let topk = usize::try_from(num_topk).ok().filter(|&topk| topk > 0).ok_or_else(|| {
        Refusal::argument(assert, "num_topk", "the number is given", ">= 1", num_topk)
    })?;
    let expert_major = layout == ncclEpLayout_t::NCCL_EP_LAYOUT_EXPERT_MAJOR;
    // SAFETY: this function's contract: writable.
    unsafe { out.write(memory_bytes(settings, expert_major, topk)) };
    Ok(())
}

pub(super) fn check_memory(
    group: &View<'_>,
    memory: &Tensor,
    bytes: usize,
) -> Outcome<HandleMemory> {
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
    Ok(HandleMemory::new(memory.data(group.member, window_only)?, bytes))
}
