//! What low-latency combine checks (EP 4.4.1).

use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use crate::ep::arguments::{CombineArguments, output};
use crate::ep::group::View;
use crate::ep::ll::destination::CombineDestination;
use crate::ep::ll::limits::{check_blocks, check_hidden};
use crate::ep::ll::state::{Called, LastDispatch};
use crate::ep::refusals::{check_row_fits, compile_failure, not_dispatched, not_updated};
use crate::ep::settings::{HandleSettings, Settings, ll_groups, ll_warps};
use crate::ep::slots::NOWHERE;
use crate::ep::tensor::{Tensor, TopK, WindowOnly};
use crate::lock::lock;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What a combine needs when its arguments have been checked.
pub(super) struct Checked {
    pub(super) rows: *const u8,
    pub(super) destination: CombineDestination,
}

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(super) unsafe fn check(
    group: &View<'_>,
    handle: &HandleSettings,
    called: &Called,
    arguments: &CombineArguments,
) -> Outcome<Checked> {
    let (member, settings) = (group.member, group.settings);
    let assert = FailureClass::Assert;
    let topk = called.topk.ok_or_else(|| not_updated(assert, ncclResult_t::ncclInvalidUsage))?;
    let Settings { ranks, max_tokens, local_experts, .. } = *settings;
    let expert_major = handle.is_expert_major();
    let tokens = &arguments.tokens;
    tokens.require_ndim(assert, 3)?;
    let hidden = tokens.extent(2);
    check_hidden(hidden, 16)?;
    check_hidden(hidden, 128)?;
    if expert_major {
        tokens.require_shape(assert, &[local_experts, ranks * max_tokens, hidden])?;
    } else {
        tokens.require_shape(assert, &[ranks, max_tokens, hidden])?;
    }
    // SAFETY: this function's contract.
    let out = unsafe { output(arguments, topk.tokens, hidden, assert)? };
    let undefined = WindowOnly::Undefined;
    let mut weights = core::ptr::null();
    if expert_major {
        // Listed under the outputs, but it is the routing weights, an input.
        // SAFETY: this function's contract.
        let tensor =
            unsafe { Tensor::optional(arguments.outputs.topk_weights, "outputs.topk_weights")? };
        let tensor =
            tensor.ok_or_else(|| Refusal::null(FailureClass::Throw, "outputs.topk_weights"))?;
        tensor.require_shape(assert, &[topk.tokens, handle.topk])?;
        tensor.require_type(assert, &[DataType::Float32])?;
        weights = tensor.data(member, undefined)?.cast::<f32>();
    }
    check_blocks(settings)?;
    check_row(settings, arguments.data_type, hidden)?;
    lock(group.staging).require_nothing_pending()?;
    require(called.dispatched, not_dispatched)?;
    let rows = tokens.data(member, undefined)?;
    let destination = CombineDestination {
        out: out.data(member, undefined)?,
        hidden,
        topk: handle.topk,
        data_type: arguments.data_type,
        weights,
        expert_major,
        ids: topk,
    };
    Ok(Checked { rows, destination })
}

/// Rows that the combine kernel compiles and runs for (EP 4.4.1).
fn check_row(settings: &Settings, data_type: DataType, hidden: usize) -> Outcome {
    let bytes = hidden.saturating_mul(data_type.size());
    let warps = ll_warps(ll_groups(settings.experts, settings.comm_sms));
    let most = 1024 * warps.saturating_sub(1);
    require(bytes <= most, || {
        let rule = "each decoding warp takes 1024 bytes of a row";
        let expected = format_args!("at most {most} bytes").to_string();
        Refusal::argument(FailureClass::Return, "inputs.tokens", rule, expected, bytes)
    })?;
    require(hidden.is_multiple_of(512), || {
        let rule = "the combine kernel's message slots are multiples of 16 bytes";
        compile_failure("inputs.tokens", rule, "a multiple of 512 elements".into(), hidden)
    })?;
    check_row_fits(FailureClass::UndefinedBehaviour, bytes, settings.max_token_bytes)
}

/// The slots of the last dispatch are those of the ids that are combined.
///
/// # Safety
/// The top-k table is valid and does not change meanwhile.
pub(super) unsafe fn check_dispatched(sent: &LastDispatch, topk: TopK) -> Outcome {
    let undefined = FailureClass::UndefinedBehaviour;
    require(sent.operation != 0, not_dispatched)?;
    topk.declare()?;
    // SAFETY: this function's contract.
    let ids = unsafe { topk.ids() };
    let same = ids.len() == sent.entries.experts.len()
        && ids
            .zip(&sent.entries.experts)
            .all(|(id, &expert)| u32::try_from(id).unwrap_or(NOWHERE) == expert);
    require(same, || {
        let rule = "the ids of a step stay the same from its dispatch to its last combine";
        Refusal::usage(undefined, "topk_idx", rule, "the ids that were dispatched", "others")
    })
}
