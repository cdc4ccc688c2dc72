//! What low-latency dispatch checks (EP 4.1 to 4.3).

use nccl_ep_sys::ncclEpTensor_t;
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use crate::ep::arguments::{DispatchArguments, check_tokens, global_ids};
use crate::ep::group::View;
use crate::ep::ll::destination::{Outputs, RankMajor};
use crate::ep::ll::limits::{check_blocks, check_hidden};
use crate::ep::refusals::{compile_failure, not_updated};
use crate::ep::settings::{HandleSettings, Layout, Settings};
use crate::ep::tensor::{Tensor, TopK, WindowOnly};
use crate::lock::lock;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What a dispatch needs when its arguments have been checked.
pub(super) struct Checked {
    /// The table of the last update.
    pub(super) topk: TopK,
    pub(super) tensors: Tensors,
}

/// The memory behind the tensors.
pub(super) struct Tensors {
    pub(super) rows: *const u8,
    /// NULL for expert-major.
    pub(super) weights: *const f32,
    pub(super) outputs: Outputs,
}

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(super) unsafe fn check(
    group: &View<'_>,
    handle: &HandleSettings,
    topk: Option<TopK>,
    arguments: &DispatchArguments,
) -> Outcome<Checked> {
    let tokens = topk.map_or(arguments.tokens.extent(0), |topk| topk.tokens);
    // SAFETY: this function's contract.
    let tensors = unsafe { tensors(group, handle, arguments, tokens)? };
    lock(group.staging).require_nothing_pending()?;
    check_geometry(group.settings, arguments)?;
    let refusal = || not_updated(FailureClass::Return, ncclResult_t::ncclInvalidArgument);
    Ok(Checked { topk: topk.ok_or_else(refusal)?, tensors })
}

/// Shapes and presence (EP 4.2, 4.3).
///
/// # Safety
/// As [`check`].
unsafe fn tensors(
    group: &View<'_>,
    handle: &HandleSettings,
    arguments: &DispatchArguments,
    tokens: usize,
) -> Outcome<Tensors> {
    let (settings, member) = (group.settings, group.member);
    let assert = FailureClass::Assert;
    check_tokens(arguments, tokens, settings.max_tokens, settings.max_token_bytes)?;
    let hidden = arguments.tokens.extent(1);
    // Forwarded rows have been found to be multiples of 16 bytes.
    if arguments.scales.is_none() {
        check_hidden(hidden, 16)?;
    }
    let Settings { ranks, max_tokens, local_experts, .. } = *settings;
    let out = &arguments.out_tokens;
    let (inputs, outputs) = (&arguments.inputs, &arguments.outputs);
    // SAFETY: this function's contract.
    let optional = |given, name| unsafe { Tensor::optional(given, name) };
    let forbidden = |given: *const ncclEpTensor_t, name, rule| {
        let refusal = || Refusal::argument(assert, name, rule, "NULL", "a tensor");
        require(given.is_null(), refusal)
    };
    let needed = |given, name| optional(given, name)?.ok_or_else(|| Refusal::null(assert, name));
    let undefined = WindowOnly::Undefined;
    let rows = arguments.tokens.data(member, undefined)?;
    if handle.is_expert_major() {
        let rule = "expert-major dispatch carries no weights and no indices";
        forbidden(inputs.topk_weights, "inputs.topk_weights", rule)?;
        out.require_shape(assert, &[local_experts, ranks * max_tokens, hidden])?;
        forbidden(outputs.topk_weights, "outputs.topk_weights", rule)?;
        forbidden(outputs.topk_idx, "outputs.topk_idx", rule)?;
        let info = arguments.info.as_ref().ok_or_else(|| Refusal::null(assert, "layout_info"))?;
        let counters = needed(info.expert_counters, "layout_info.expert_counters")?;
        counters.require_shape(assert, &[local_experts])?;
        counters.require_type(assert, &[DataType::Int32])?;
        let rule = "expert-major dispatch counts by expert";
        forbidden(info.src_rank_counters, "layout_info.src_rank_counters", rule)?;
        let outputs = Outputs::ExpertMajor {
            rows: out.data(member, WindowOnly::Resolved)?,
            counters: counters.data(member, undefined)?.cast(),
        };
        check_zero_copy(settings, handle.layout, arguments)?;
        return Ok(Tensors { rows, weights: core::ptr::null(), outputs });
    }
    let weights = needed(inputs.topk_weights, "inputs.topk_weights")?;
    weights.require_shape(assert, &[tokens, handle.topk])?;
    weights.require_type(assert, &[DataType::Float32])?;
    let shape = [ranks, max_tokens, handle.topk];
    out.require_shape(assert, &[ranks, max_tokens, hidden])?;
    let out_weights = needed(outputs.topk_weights, "outputs.topk_weights")?;
    out_weights.require_shape(assert, &shape)?;
    out_weights.require_type(assert, &[DataType::Float32])?;
    let ids = needed(outputs.topk_idx, "outputs.topk_idx")?;
    ids.require_shape(assert, &shape)?;
    ids.require_type(assert, &[DataType::Int32])?;
    let mut counters = core::ptr::null_mut();
    if let Some(info) = &arguments.info {
        let rule = "rank-major dispatch counts by source rank";
        forbidden(info.expert_counters, "layout_info.expert_counters", rule)?;
        let name = "layout_info.src_rank_counters";
        if let Some(tensor) = optional(info.src_rank_counters, name)? {
            tensor.require_shape(assert, &[ranks])?;
            tensor.require_type(assert, &[DataType::Int32])?;
            counters = tensor.data(member, undefined)?.cast();
        }
    }
    let scales = arguments.scales.as_ref().map(|scales| &scales.output);
    let outputs = Outputs::RankMajor(RankMajor {
        rows: out.data(member, WindowOnly::Resolved)?,
        weights: out_weights.data(member, undefined)?.cast(),
        ids: ids.data(member, undefined)?.cast(),
        counters,
        global: global_ids(arguments.info.as_ref())?,
        direct_rows: out.has_window(),
        direct_scales: scales.is_some_and(Tensor::has_window),
    });
    check_zero_copy(settings, handle.layout, arguments)?;
    // Without tokens the pointer may be NULL, which says expert-major; nobody follows it then.
    let weights = weights.data(member, undefined)?.cast::<f32>();
    let weights = if tokens == 0 { core::ptr::dangling() } else { weights.cast_const() };
    Ok(Tensors { rows, weights, outputs })
}

/// EP 4.14.
fn check_zero_copy(settings: &Settings, layout: Layout, arguments: &DispatchArguments) -> Outcome {
    let ret = FailureClass::Return;
    if !settings.zero_copy_on {
        return Ok(());
    }
    require(layout == Layout::RankMajor, || {
        let rule = "with zero_copy ON low latency dispatches rank-major only";
        Refusal::argument(ret, "layout", rule, "RANK_MAJOR", "EXPERT_MAJOR")
    })?;
    let scales = arguments.scales.as_ref().is_some_and(|scales| scales.output.has_window());
    require(scales || arguments.out_tokens.has_window(), || {
        let rule = "with zero_copy ON the output is a window";
        Refusal::argument(ret, "outputs.tokens", rule, "win_hdl", "none")
    })
}

/// Launch shape and compile-time rules (EP 4.1).
fn check_geometry(settings: &Settings, arguments: &DispatchArguments) -> Outcome {
    check_blocks(settings)?;
    if arguments.scales.is_some() {
        return Ok(());
    }
    let unit = 32 * 16 / arguments.data_type.size();
    let hidden = arguments.tokens.extent(1);
    require(hidden.is_multiple_of(unit), || {
        let expected = format_args!("a multiple of {unit} elements").to_string();
        let rule = "the dispatch kernel compiles for whole warps of 16-byte loads";
        compile_failure("inputs.tokens", rule, expected, hidden)
    })
}
