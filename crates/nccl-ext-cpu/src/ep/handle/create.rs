//! Creation of handles (EP 3.2).

use std::sync::Arc;

use nccl_ep_sys::{
    ncclEpGroup_t, ncclEpHandle_t, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpTensor_t,
};

use super::memory::{check_layout_is_set, check_memory, memory_bytes};
use super::object::{Ready, hand_out};
use crate::entry::Scope;
use crate::ep::group::{self, Group, View};
use crate::ep::ht::HighThroughput;
use crate::ep::ll::LowLatency;
use crate::ep::settings::{
    Algorithm, HandleSettings, Layout, check_high_throughput_topk, check_low_latency_topk,
    known_layout, ll_buffer,
};
use crate::ep::structs;
use crate::ep::tensor::{Tensor, WindowOnly};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The arguments of a handle's creation, of which the algorithm has checked nothing yet.
pub(crate) struct Checked {
    pub(crate) group: Arc<Group>,
    layout: Layout,
    alignment: usize,
    pub(crate) memory: Option<Tensor>,
}

/// Checks what comes before the algorithm's part (EP 3.2, #1 to #6); `first` has a word before
/// the layout.
///
/// # Safety
/// The C contract of `ncclEpInitHandle`.
pub(crate) unsafe fn check(
    scope: &Scope,
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    memory: *const ncclEpTensor_t,
    first: impl FnOnce(&View<'_>) -> Outcome,
) -> Outcome<Checked> {
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
    check_layout_is_set(layout)?;
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
    Ok(Checked { group, layout, alignment, memory })
}

/// # Safety
/// The C contract of `ncclEpInitHandle`.
pub(crate) unsafe fn init(
    scope: &Scope,
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    num_topk: i32,
    memory: *const ncclEpTensor_t,
) -> Outcome {
    // SAFETY: this function's contract.
    let checked = unsafe { check(scope, out, group, layout, config, memory, |_| Ok(()))? };
    // From here on the out pointer is set whatever happens (EP 3.2, #7).
    let ready = checked.group.view().and_then(|view| prepare(&view, &checked, num_topk));
    let (ready, result) = match ready {
        Ok(ready) => (Some(ready), Ok(())),
        Err(refusal) => (None, Err(refusal)),
    };
    // SAFETY: this function's contract: writable.
    unsafe { out.write(hand_out(&checked.group, ready)) };
    result
}

/// The algorithm's part of creation.
pub(crate) fn prepare(group: &View<'_>, checked: &Checked, num_topk: i32) -> Outcome<Ready> {
    let settings = group.settings;
    let Checked { layout, alignment, .. } = *checked;
    let topk = match settings.algorithm {
        Algorithm::LowLatency => {
            let topk = check_low_latency_topk(settings, layout, num_topk)?;
            group.grow(ll_buffer(settings, layout == Layout::RankMajor, topk).total)?;
            topk
        }
        Algorithm::HighThroughput => {
            check_high_throughput_topk(settings, layout, alignment, num_topk)?
        }
    };
    let bytes = memory_bytes(settings, layout == Layout::ExpertMajor, topk);
    let (memory, block) = match &checked.memory {
        Some(memory) => (Some(check_memory(group, memory, bytes)?), None),
        None => (None, group.allocator.allocate(bytes)?),
    };
    let low = match (settings.algorithm, &checked.memory, &block) {
        (Algorithm::LowLatency, Some(memory), _) => {
            LowLatency::with_memory(memory.data(group.member, WindowOnly::Undefined)?, bytes)
        }
        (Algorithm::LowLatency, None, Some(block)) => {
            LowLatency::with_memory(block.pointer(), bytes)
        }
        _ => LowLatency::default(),
    };
    if let Some(masks) = group.masks {
        masks.note_handle();
    }
    Ok(Ready {
        settings: HandleSettings { layout, topk, alignment },
        low: Arc::new(low),
        high: Arc::new(HighThroughput::new(memory)),
        _block: block,
    })
}
