//! Low-latency dispatch (EP 4.1 to 4.3): every rank pulls its rows from what its peers offer.

use std::sync::Arc;

use nccl_ep_sys::ncclEpTensor_t;
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use super::dispatch::{Arguments, check_tokens, global_ids};
use super::geometry;
use super::group::View;
use super::handle::{self, Layout, Ready, compile_failure};
use super::low_latency::{Pending, Sent, lowest_id, require_nothing_staged};
use super::masked;
use super::receive_ll::{Offer, Outputs, Receive};
use super::scales;
use super::settings::Settings;
use super::tensor::{Tensor, WindowOnly};
use super::update::not_updated;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::KEYS;

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(super) unsafe fn dispatch(group: &View<'_>, ready: &Ready, arguments: &Arguments) -> Outcome {
    let settings = group.settings;
    let state = &mut *handle::lock(&ready.low);
    let tokens = state.topk.map_or(arguments.tokens.extent(0), |topk| topk.tokens);
    // SAFETY: this function's contract.
    let (rows, weights, outputs) = unsafe { check(group, ready, arguments, tokens)? };
    let staged = handle::lock(group.staging).pending;
    require_nothing_staged(staged)?;
    check_geometry(settings, arguments)?;
    let topk = state
        .topk
        .ok_or_else(|| not_updated(FailureClass::Return, ncclResult_t::ncclInvalidArgument))?;
    let entries = &mut state.sent.entries;
    state.sent.operation = 0;
    // SAFETY: the caller keeps the table of the last update until the step's last combine. It may
    // have been written since, so it is checked again.
    unsafe {
        topk.check(settings.experts, lowest_id(settings))?;
        entries.build(topk.ids(), settings.experts);
    }
    let (scales, out_scales, scale_bytes) =
        scales::data(arguments.scales.as_ref(), group.member, WindowOnly::Undefined)?;
    let offer = Offer {
        key: [
            group.index,
            ready.layout as u64,
            ready.topk as u64,
            arguments.tokens.extent(1) as u64,
            arguments.data_type as u64,
            scale_bytes as u64,
        ],
        tokens,
        experts: entries.experts.as_ptr(),
        per_expert: entries.per_expert.as_ptr(),
        rows,
        scales,
        weights,
    };
    let bytes = arguments.row_bytes()?;
    let receive = Receive { topk: ready.topk, bytes, scale_bytes, scales: out_scales, outputs };
    if let Some(masks) = group.masks {
        // SAFETY: the offer was made of the caller's tensors and this handle's tables.
        let operation = unsafe { masked::send_dispatch(group, masks, &offer, &receive) };
        if arguments.send_only {
            let key = offer.key;
            state.pending = Some(Pending::Dispatch { operation, key, receive });
            handle::lock(group.staging).pending = true;
            return Ok(());
        }
        let sent = &mut state.sent;
        // SAFETY: `check` found the outputs to have the layout's shapes.
        return unsafe {
            masked::receive_dispatch(group, masks, sent, operation, offer.key, &receive)
        };
    }
    let stage = |operation| {
        let mut staging = handle::lock(group.staging);
        let bank = staging.bank(operation);
        // SAFETY: the offer was made of the caller's tensors and this handle's tables.
        unsafe { bank.stage_offer(&offer, &receive, settings.experts) }
    };
    if arguments.send_only {
        let copy = stage(group.member.next_operation(group.line())?);
        // SAFETY: the group's bank keeps the copy until the second operation from here, and the
        // group outlives its line.
        let operation = unsafe { group.member.stage(group.line(), &*copy)? };
        let key = offer.key;
        state.pending = Some(Pending::Dispatch { operation, key, receive });
        handle::lock(group.staging).pending = true;
        return Ok(());
    }
    let sent = &mut state.sent;
    let work = |peers: &[&Offer], operation| {
        // SAFETY: `check` found the outputs to have the layout's shapes.
        unsafe { receive.pull(group, sent, peers, &peers[..group.member.rank()], operation) }
    };
    let stage = |operation| Some(Arc::as_ptr(&stage(operation)));
    group.member.collective_among_staged(group.line(), &offer, work, stage)?
}

/// The receive half of a staged dispatch.
///
/// # Safety
/// The outputs of the staged call are still valid.
pub(super) unsafe fn complete(
    group: &View<'_>,
    sent: &mut Sent,
    operation: u64,
    key: [u64; KEYS],
    receive: &Receive,
) -> Outcome {
    if let Some(masks) = group.masks {
        // SAFETY: this function's contract.
        return unsafe { masked::receive_dispatch(group, masks, sent, operation, key, receive) };
    }
    group.member.complete(group.line(), operation, |peers: &[&Offer]| {
        // SAFETY: this function's contract.
        unsafe { receive.pull(group, sent, peers, &peers[..group.member.rank()], operation) }
    })?
}

/// Shapes and presence (EP 4.2, 4.3).
///
/// # Safety
/// As [`dispatch`].
unsafe fn check(
    group: &View<'_>,
    ready: &Ready,
    arguments: &Arguments,
    tokens: usize,
) -> Outcome<(*const u8, *const f32, Outputs)> {
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
    if ready.layout == Layout::ExpertMajor {
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
        check_zero_copy(settings, ready.layout, arguments)?;
        return Ok((rows, core::ptr::null(), outputs));
    }
    let weights = needed(inputs.topk_weights, "inputs.topk_weights")?;
    weights.require_shape(assert, &[tokens, ready.topk])?;
    weights.require_type(assert, &[DataType::Float32])?;
    let shape = [ranks, max_tokens, ready.topk];
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
    let outputs = Outputs::RankMajor {
        rows: out.data(member, WindowOnly::Resolved)?,
        weights: out_weights.data(member, undefined)?.cast(),
        ids: ids.data(member, undefined)?.cast(),
        counters,
        global: global_ids(arguments.info.as_ref())?,
    };
    check_zero_copy(settings, ready.layout, arguments)?;
    // Without tokens the pointer may be NULL, which says expert-major; nobody follows it then.
    let weights = weights.data(member, undefined)?.cast::<f32>();
    let weights = if tokens == 0 { core::ptr::dangling() } else { weights.cast_const() };
    Ok((rows, weights, outputs))
}

/// Elements of a row come in units.
pub(super) fn check_hidden(hidden: usize, unit: usize) -> Outcome {
    require(hidden.is_multiple_of(unit), || {
        let rule = "low latency moves rows in units of elements";
        let expected = format_args!("a multiple of {unit} elements").to_string();
        Refusal::argument(FailureClass::Assert, "inputs.tokens", rule, expected, hidden)
    })
}

/// EP 4.14.
fn check_zero_copy(settings: &Settings, layout: Layout, arguments: &Arguments) -> Outcome {
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
fn check_geometry(settings: &Settings, arguments: &Arguments) -> Outcome {
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

/// A low-latency kernel runs on two blocks at least.
pub(super) fn check_blocks(settings: &Settings) -> Outcome {
    let groups = geometry::ll_groups(settings.experts, settings.comm_sms);
    let blocks = settings.experts.div_ceil(groups.max(1));
    require(blocks >= 2, || {
        let rule = "low latency runs on two blocks at least";
        let expected = "2 experts and 2 SMs at least";
        let found = format!("{} experts, {} SMs", settings.experts, settings.comm_sms);
        Refusal::usage(FailureClass::Trap, "num_experts", rule, expected, found)
    })
}
