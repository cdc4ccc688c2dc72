//! `ncclExtImportHandle`: a handle in memory that a high-throughput update has prepared.

use core::ffi::c_int;

use nccl_ep_sys::{
    ncclEpGroup_t, ncclEpHandle_t, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpTensor_t,
};
use nccl_ext_core::raw::ncclDataType_t;

use crate::entry::Scope;
use crate::ep::group::View;
use crate::ep::handle;
use crate::ep::ht::ImageFacts;
use crate::ep::settings::Algorithm;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What the caller says of the update.
pub(crate) struct UpdateFacts {
    pub(crate) tokens: usize,
    pub(crate) topk: c_int,
    pub(crate) id_type: ncclDataType_t,
}

/// # Safety
/// The C contract of `ncclEpInitHandle`.
pub(crate) unsafe fn import(
    scope: &Scope,
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    config: *const ncclEpHandleConfig_t,
    update: &UpdateFacts,
    memory: *const ncclEpTensor_t,
) -> Outcome {
    let ret = FailureClass::Return;
    // SAFETY: this function's contract.
    let checked = unsafe { handle::check(scope, out, group, layout, config, memory, import_only)? };
    let view = checked.group.view()?;
    require(checked.memory.is_some(), || Refusal::null(ret, "handle_mem"))?;
    let ready = handle::prepare(&view, &checked, update.topk)?;
    let (settings, rank) = (view.settings, view.member.rank());
    let facts = ImageFacts::new(settings, &ready.settings, rank, update.tokens, update.id_type);
    // SAFETY: this function's contract; `prepare` found the memory as large as the largest image.
    unsafe { ready.high.import(&view, &facts, update.tokens, &ready.settings)? };
    // The out pointer is set only now: of a refused import nothing is left to destroy.
    // SAFETY: this function's contract: writable.
    unsafe { out.write(handle::hand_out(&checked.group, Some(ready))) };
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
