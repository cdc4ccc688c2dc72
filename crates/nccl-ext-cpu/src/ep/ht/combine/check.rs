//! What high-throughput combine checks (EP 4.8.1).

use nccl_ext_core::raw::ncclResult_t;

use crate::ep::arguments::{CombineArguments, output};
use crate::ep::group::View;
use crate::ep::ht::state::HighThroughput;
use crate::ep::refusals::{check_row_fits, check_row_unit, not_updated};
use crate::ep::settings::{EmMode, HandleSettings};
use crate::ep::tensor::WindowOnly;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What a combine needs when its arguments have been checked.
pub(super) struct Checked {
    pub(super) hidden: usize,
    pub(super) rows: *mut u8,
    /// Whether sums of a rank's own rows are left in them (EP 4.8.5).
    pub(super) mutated: bool,
    pub(super) out: *mut u8,
    /// `None` for FLAT.
    pub(super) mode: Option<EmMode>,
}

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(super) unsafe fn check(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &HighThroughput,
    arguments: &CombineArguments,
) -> Outcome<Checked> {
    let (member, settings) = (group.member, group.settings);
    let (assert, ret) = (FailureClass::Assert, FailureClass::Return);
    require(state.update != 0, || not_updated(FailureClass::Trap, ncclResult_t::ncclInvalidUsage))?;
    let tokens = &arguments.tokens;
    require(tokens.ndim() > 0, || {
        Refusal::argument(ret, "inputs.tokens", "the number of extents", 2, tokens.ndim())
    })?;
    tokens.require_ndim(assert, 2)?;
    let hidden = tokens.extent(1);
    let bytes = hidden.saturating_mul(arguments.data_type.size());
    check_row_unit(assert, "inputs.tokens", bytes)?;
    require(arguments.inputs.topk_weights.is_null(), || {
        let rule = "forward combine takes no weights";
        Refusal::argument(ret, "inputs.topk_weights", rule, "NULL", "a tensor")
    })?;
    let undefined = FailureClass::UndefinedBehaviour;
    // SAFETY: this function's contract.
    let out = unsafe { output(arguments, state.routes.tokens(), hidden, undefined)? };
    require(!settings.zero_copy_on || tokens.has_window(), || {
        let rule = "with zero_copy ON the input is a window";
        Refusal::argument(ret, "inputs.tokens", rule, "win_hdl", "none")
    })?;
    check_kernel(group, handle, state, hidden)?;
    check_row_fits(undefined, bytes, settings.max_token_bytes)?;
    let expert_major = handle.is_expert_major();
    check_rows(group, state, expert_major, tokens.extent(0))?;
    let mode = if expert_major { Some(settings.em_mode) } else { None };
    Ok(Checked {
        hidden,
        rows: tokens.data(member, WindowOnly::Resolved)?,
        mutated: mode == Some(EmMode::LocalDup) && tokens.has_window(),
        out: out.data(member, WindowOnly::Resolved)?,
        mode,
    })
}

/// What the vendor's kernels need, which abort while they compile or run (EP 4.8.1).
fn check_kernel(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &HighThroughput,
    hidden: usize,
) -> Outcome {
    let abort = FailureClass::JitAbort;
    require(hidden.is_multiple_of(8), || {
        let rule = "the combine kernel compiles for groups of eight elements";
        Refusal::argument(abort, "inputs.tokens", rule, "a multiple of 8 elements", hidden)
    })?;
    let mode = group.settings.em_mode;
    if !handle.is_expert_major() || mode == EmMode::NvlinkDup {
        return Ok(());
    }
    require(handle.topk <= 32, || {
        let rule = "expert-major combine sums at most 32 experts a token";
        let class = if mode == EmMode::LocalPermute { abort } else { FailureClass::Trap };
        Refusal::argument(class, "num_topk", rule, "at most 32", handle.topk)
    })?;
    let widest = state.placement.widest;
    require(mode == EmMode::LocalPermute || widest <= 8, || {
        let rule = "local duplication sums at most eight experts of a token on one rank";
        Refusal::argument(FailureClass::Trap, "topk_idx", rule, "at most 8", widest)
    })
}

/// Every row that was received is given back.
fn check_rows(
    group: &View<'_>,
    state: &HighThroughput,
    expert_major: bool,
    rows: usize,
) -> Outcome {
    let settings = group.settings;
    let received = state.placement.received(group.member.rank(), expert_major, settings);
    require(rows as u64 >= received, || {
        let permute = expert_major && settings.em_mode == EmMode::LocalPermute;
        let class = if permute { FailureClass::Trap } else { FailureClass::UndefinedBehaviour };
        let rule = "the input has every row that was received";
        let expected = format_args!("at least {received} rows").to_string();
        Refusal::argument(class, "inputs.tokens", rule, expected, rows)
    })
}
