//! What high-throughput dispatch checks (EP 4.5).

use nccl_ext_core::DataType;

use super::push::{Outputs, RowBytes, Sources};
use super::reception::Reception;
use crate::ep::arguments::{
    DispatchArguments, check_tokens, check_windows, global_ids, scale_data,
};
use crate::ep::group::View;
use crate::ep::ht::learned::Known;
use crate::ep::refusals::check_row_unit;
use crate::ep::settings::HandleSettings;
use crate::ep::tensor::{Tensor, WindowOnly};
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::Member;

/// What a dispatch needs when its arguments have been checked.
pub(super) struct Checked {
    pub(super) sources: Sources,
    pub(super) bytes: RowBytes,
    /// Where this rank receives. One that breaks these rules alone sends to the others and then
    /// fails.
    pub(super) outputs: Outcome<Outputs>,
}

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(super) unsafe fn check(
    group: &View<'_>,
    handle: &HandleSettings,
    reception: &Reception,
    known: &Known,
    arguments: &DispatchArguments,
) -> Outcome<Checked> {
    // SAFETY: this function's contract.
    let sources = unsafe { sources(group, handle, reception, known, arguments)? };
    let global = if reception.expert_major { false } else { global_ids(arguments.info.as_ref())? };
    let scales = arguments.scales.as_ref().map_or(0, |scales| scales.bytes);
    let bytes = RowBytes { tokens: arguments.row_bytes()?, scales };
    // SAFETY: this function's contract.
    let outputs = unsafe { outputs(group, handle, reception, known, arguments, global) };
    Ok(Checked { sources, bytes, outputs })
}

/// Rules 1 to 16, after which the rank takes part: what it sends.
///
/// # Safety
/// As [`check`].
unsafe fn sources(
    group: &View<'_>,
    handle: &HandleSettings,
    reception: &Reception,
    known: &Known,
    arguments: &DispatchArguments,
) -> Outcome<Sources> {
    let settings = group.settings;
    let (assert, ret) = (FailureClass::Assert, FailureClass::Return);
    let (tokens, out) = (&arguments.tokens, &arguments.out_tokens);
    let Known { tokens: updated, received, .. } = *known;
    check_tokens(arguments, updated, settings.max_tokens, settings.max_token_bytes)?;
    let all = settings.local_experts * settings.ranks;
    require(all.is_multiple_of(4), || {
        let rule = "the routing bitmap is read four experts at a time";
        Refusal::argument(assert, "num_experts", rule, "a multiple of 4", all)
    })?;
    let bytes = arguments.row_bytes()?;
    check_row_unit(assert, "inputs.tokens", bytes)?;
    require(out.ndim() >= 2, || {
        let rule = "the number of extents";
        Refusal::argument(ret, "outputs.tokens", rule, 2, out.ndim())
    })?;
    let rows = out.extent(0) as u64;
    let needed = reception.budget.unwrap_or(0).max(received);
    require(reception.budget.is_none_or(|budget| rows >= budget), || rows_refusal(out, needed))?;
    check_windows(out, arguments.scales.as_ref())?;
    // SAFETY: this function's contract, here and below.
    let weights = unsafe { Tensor::optional(arguments.inputs.topk_weights, WEIGHTS)? };
    let weights = weights.ok_or_else(|| Refusal::null(ret, WEIGHTS))?;
    weights.require_type(assert, &[DataType::Float32])?;
    weights.require_shape(assert, &[updated, handle.topk])?;
    require(!settings.zero_copy_on || out.has_window(), || {
        let rule = "with zero_copy ON the output is a window";
        Refusal::argument(ret, "outputs.tokens", rule, "win_hdl", "none")
    })?;
    require(rows >= received, || rows_refusal(out, received))?;
    // SAFETY: as above.
    let out_weights = unsafe { Tensor::optional(arguments.outputs.topk_weights, OUT_WEIGHTS)? };
    require(out_weights.is_none_or(|weights| weights.is_empty() == out.is_empty()), || {
        let rule = "token and weight outputs are empty together";
        let word = |empty| if empty { "empty" } else { "not empty" };
        Refusal::argument(ret, OUT_WEIGHTS, rule, word(out.is_empty()), word(!out.is_empty()))
    })?;
    let dup = reception.expert_major && !reception.permute;
    let inner = if dup { handle.topk } else { settings.ranks };
    require((settings.max_tokens * inner).is_multiple_of(4), || {
        let rule = "the routing map is read four entries at a time";
        let name = "max_dispatch_tokens_per_rank";
        let found = format_args!("{} * {inner}", settings.max_tokens).to_string();
        Refusal::argument(assert, name, rule, "a product that is a multiple of 4", found)
    })?;
    out.require_ndim(assert, 2)?;
    require(out.extent(1) == tokens.extent(1), || {
        let rule = "outputs are as wide as inputs";
        let class = FailureClass::UndefinedBehaviour;
        Refusal::argument(class, "outputs.tokens", rule, tokens.extent(1), out.extent(1))
    })?;
    out.data(group.member, WindowOnly::Resolved)?;
    let (scales, ..) = scale_data(arguments.scales.as_ref(), group.member, WindowOnly::Resolved)?;
    Ok(Sources {
        scales,
        tokens: tokens.data(group.member, WindowOnly::Resolved)?,
        weights: weights.data(group.member, WindowOnly::Resolved)?.cast(),
    })
}

const WEIGHTS: &str = "inputs.topk_weights";
const OUT_WEIGHTS: &str = "outputs.topk_weights";
const OUT_IDS: &str = "outputs.topk_idx";

fn rows_refusal(out: &Tensor, needed: u64) -> Refusal {
    let expected = format_args!("at least {needed} rows").to_string();
    let rule = "the output holds what the rank can receive";
    Refusal::argument(FailureClass::Return, out.name(), rule, expected, out.extent(0))
}

/// Rules 19 to 25: where it receives.
///
/// # Safety
/// As [`check`].
unsafe fn outputs(
    group: &View<'_>,
    handle: &HandleSettings,
    reception: &Reception,
    known: &Known,
    arguments: &DispatchArguments,
    global: bool,
) -> Outcome<Outputs> {
    let (assert, ret) = (FailureClass::Assert, FailureClass::Return);
    let member: &Member = group.member;
    let outputs = &arguments.outputs;
    // SAFETY: this function's contract, here and below.
    let weights = unsafe { Tensor::optional(outputs.topk_weights, OUT_WEIGHTS)? };
    // SAFETY: as above.
    let ids = unsafe { Tensor::optional(outputs.topk_idx, OUT_IDS)? };
    let weights = weights.ok_or_else(|| Refusal::null(ret, OUT_WEIGHTS))?;
    let columns = handle.topk;
    if reception.expert_major {
        require(ids.is_none(), || {
            let rule = "expert-major rows need no index";
            Refusal::argument(ret, OUT_IDS, rule, "NULL", "a tensor")
        })?;
        weights.require_type(assert, &[DataType::Float32])?;
        weights.require_ndim(assert, 1)?;
    } else {
        let ids = ids.ok_or_else(|| Refusal::null(ret, OUT_IDS))?;
        weights.require_type(assert, &[DataType::Float32])?;
        weights.require_ndim(assert, 2)?;
        ids.require_type(assert, &[DataType::Int64])?;
        ids.require_ndim(assert, 2)?;
        require(ids.extent(0) == weights.extent(0), || {
            let rule = "index and weight outputs have the same rows";
            Refusal::argument(ret, OUT_IDS, rule, weights.extent(0), ids.extent(0))
        })?;
        let undefined = FailureClass::UndefinedBehaviour;
        for tensor in [&ids, &weights] {
            require(tensor.extent(1) == columns, || {
                let rule = "a row has the handle's top-k columns";
                Refusal::argument(undefined, tensor.name(), rule, columns, tensor.extent(1))
            })?;
        }
    }
    let needed = reception.weight_rows(known.received);
    require(weights.extent(0) as u64 >= needed, || rows_refusal(&weights, needed))?;
    if reception.permute {
        let local = group.settings.local_experts;
        require(local <= 256, || {
            let rule = "expert-major rows are permuted for at most 256 experts on a rank";
            Refusal::argument(assert, "num_experts", rule, "at most 256 a rank", local)
        })?;
    }
    let data = |tensor: &Tensor| tensor.data(member, WindowOnly::Resolved);
    let (_, scales, _) = scale_data(arguments.scales.as_ref(), member, WindowOnly::Resolved)?;
    Ok(Outputs {
        scales,
        tokens: data(&arguments.out_tokens)?,
        weights: data(&weights)?.cast(),
        ids: match &ids {
            Some(ids) => data(ids)?.cast(),
            None => core::ptr::null_mut(),
        },
        global,
        rows: arguments.out_tokens.extent(0) as u64,
        weight_rows: weights.extent(0) as u64,
    })
}
