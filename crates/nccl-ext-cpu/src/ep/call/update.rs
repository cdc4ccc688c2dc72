//! `ncclEpUpdateHandle` and `ncclEpCreateHandle` (EP 3.5, 3.6).

use nccl_ep_sys::{
    ncclEpGroup_t, ncclEpHandle_t, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpLayoutInfo_t,
    ncclEpTensor_t,
};
use nccl_ext_core::raw::cudaStream_t;

use crate::entry::Scope;
use crate::ep::handle::{self, Ready};
use crate::ep::settings::Algorithm;
use crate::ep::tensor::{Tensor, TopK, WindowOnly};
use crate::ep::{ht, ll, structs};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// # Safety
/// The C contract of `ncclEpUpdateHandle`.
pub(crate) unsafe fn update(
    scope: &Scope,
    handle: ncclEpHandle_t,
    topk_idx: *const ncclEpTensor_t,
    layout_info: *const ncclEpLayoutInfo_t,
    stream: cudaStream_t,
) -> Outcome {
    let assert = FailureClass::Assert;
    // SAFETY: this function's contract.
    let handle = unsafe { handle::live(handle, assert)? };
    // SAFETY: this function's contract.
    let info = unsafe { structs::optional(layout_info, "layout_info")? };
    // SAFETY: this function's contract.
    let tensor = unsafe { TopK::tensor(topk_idx)? };
    let (group, ready) = handle.view()?;
    scope.enter(group.member);
    match group.settings.algorithm {
        Algorithm::LowLatency => {
            let topk = TopK::of(&tensor, ready.settings.topk, group.member, WindowOnly::Undefined)?;
            require(info.is_none(), || {
                let rule = "low latency learns the layout at dispatch";
                Refusal::argument(assert, "layout_info", rule, "NULL", "a structure")
            })?;
            // SAFETY: this function's contract: the table stays until the step's last combine.
            unsafe { ll::update(&group, &ready.settings, &ready.low, topk) }
        }
        Algorithm::HighThroughput => {
            let topk = TopK::of(&tensor, ready.settings.topk, group.member, WindowOnly::Resolved)?;
            // SAFETY: this function's contract: the table stays until this call is done.
            unsafe {
                let Ready { settings, high, .. } = ready;
                ht::update(&group, settings, high, topk, info.as_ref(), stream)
            }
        }
    }
}

/// # Safety
/// The C contract of `ncclEpCreateHandle`.
#[expect(clippy::too_many_arguments, reason = "those of the C function, and the scope")]
pub(crate) unsafe fn create(
    scope: &Scope,
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    topk_idx: *const ncclEpTensor_t,
    layout_info: *const ncclEpLayoutInfo_t,
    config: *const ncclEpHandleConfig_t,
    stream: cudaStream_t,
) -> Outcome {
    // SAFETY: this function's contract.
    let tensor = unsafe { Tensor::required(topk_idx, "topk_idx")? };
    require(!out.is_null(), || Refusal::null(FailureClass::Assert, "handle"))?;
    // SAFETY: this function's contract.
    unsafe { structs::optional(layout_info, "layout_info")? };
    // The vendor's library reads the second extent before it looks whether there is one.
    tensor.require_ndim(FailureClass::UndefinedBehaviour, 2)?;
    let topk = i32::try_from(tensor.extent(1)).unwrap_or(i32::MAX);
    // SAFETY: this function's contract.
    unsafe {
        handle::init(scope, out, group, layout, config, topk, core::ptr::null())?;
        update(scope, out.read(), topk_idx, layout_info, stream)
    }
}
