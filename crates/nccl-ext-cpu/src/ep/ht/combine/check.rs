//! What high-throughput combine checks (EP 4.8.1).

use crate::ep::arguments::{CombineArguments, output};
use crate::ep::group::View;
use crate::ep::ht::learned::Known;
use crate::ep::refusals::{check_row_fits, check_row_unit};
use crate::ep::settings::{EmMode, HandleSettings, Settings};
use crate::ep::tensor::WindowOnly;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What a combine needs when its arguments have been checked.
pub(super) struct Checked {
    pub(super) hidden: usize,
    pub(super) rows: *mut u8,
    /// Rows that there are.
    pub(super) room: usize,
    /// Whether sums of a rank's own rows are left in them (EP 4.8.5).
    pub(super) mutated: bool,
    pub(super) out: *mut u8,
    /// `None` for FLAT.
    pub(super) mode: Option<EmMode>,
}

// SAFETY: the caller keeps the tensors valid until the stream has passed the combine, for whatever
// thread does the stream's work.
unsafe impl Send for Checked {}

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(super) unsafe fn check(
    group: &View<'_>,
    handle: &HandleSettings,
    known: &Known,
    arguments: &CombineArguments,
) -> Outcome<Checked> {
    let (member, settings) = (group.member, group.settings);
    let (assert, ret) = (FailureClass::Assert, FailureClass::Return);
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
    let out = unsafe { output(arguments, known.tokens, hidden, undefined)? };
    require(!settings.zero_copy_on || tokens.has_window(), || {
        let rule = "with zero_copy ON the input is a window";
        Refusal::argument(ret, "inputs.tokens", rule, "win_hdl", "none")
    })?;
    check_kernel(settings, handle, hidden)?;
    check_widest(settings, handle, known)?;
    check_row_fits(undefined, bytes, settings.max_token_bytes)?;
    let expert_major = handle.is_expert_major();
    check_rows(settings, handle, known, tokens.extent(0))?;
    let mode = if expert_major { Some(settings.em_mode) } else { None };
    Ok(Checked {
        hidden,
        rows: tokens.data(member, WindowOnly::Resolved)?,
        room: tokens.extent(0),
        mutated: mode == Some(EmMode::LocalDup) && tokens.has_window(),
        out: out.data(member, WindowOnly::Resolved)?,
        mode,
    })
}

/// What the vendor's kernels need, which abort while they compile or run (EP 4.8.1).
fn check_kernel(settings: &Settings, handle: &HandleSettings, hidden: usize) -> Outcome {
    let abort = FailureClass::JitAbort;
    require(hidden.is_multiple_of(8), || {
        let rule = "the combine kernel compiles for groups of eight elements";
        Refusal::argument(abort, "inputs.tokens", rule, "a multiple of 8 elements", hidden)
    })?;
    let mode = settings.em_mode;
    if !handle.is_expert_major() || mode == EmMode::NvlinkDup {
        return Ok(());
    }
    require(handle.topk <= 32, || {
        let rule = "expert-major combine sums at most 32 experts a token";
        let class = if mode == EmMode::LocalPermute { abort } else { FailureClass::Trap };
        Refusal::argument(class, "num_topk", rule, "at most 32", handle.topk)
    })
}

/// A kernel finds out about the routing when it runs (EP 4.8.1).
pub(super) fn check_widest(settings: &Settings, handle: &HandleSettings, known: &Known) -> Outcome {
    let summed = handle.is_expert_major() && settings.em_mode == EmMode::LocalDup;
    require(!summed || known.widest <= 8, || {
        let rule = "local duplication sums at most eight experts of a token on one rank";
        Refusal::argument(FailureClass::Trap, "topk_idx", rule, "at most 8", known.widest)
    })
}

/// Every row that was received is given back.
pub(super) fn check_rows(
    settings: &Settings,
    handle: &HandleSettings,
    known: &Known,
    rows: usize,
) -> Outcome {
    let received = known.received;
    require(rows as u64 >= received, || {
        let permute = handle.is_expert_major() && settings.em_mode == EmMode::LocalPermute;
        let class = if permute { FailureClass::Trap } else { FailureClass::UndefinedBehaviour };
        let rule = "the input has every row that was received";
        let expected = format_args!("at least {received} rows").to_string();
        Refusal::argument(class, "inputs.tokens", rule, expected, rows)
    })
}
