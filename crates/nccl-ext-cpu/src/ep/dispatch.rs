//! What dispatch checks for both algorithms (EP 4.0).

use nccl_ep_sys::{
    ncclEpDispQuant_t, ncclEpDispatchConfig_t, ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t,
    ncclEpExpertIdKind_t, ncclEpHandle_t, ncclEpLayoutInfo_t, ncclEpPassDir_t,
};
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use super::group::View;
use super::handle::{self, Ready};
use super::numerics::TOKEN_TYPES;
use super::scales::{self, Scales};
use super::settings::Algorithm;
use super::structs;
use super::tensor::Tensor;
use super::{dispatch_ht, dispatch_ll};
use crate::entry::Scope;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The arguments of a dispatch whose tokens and recipe are fine.
pub(super) struct Arguments {
    pub(super) inputs: ncclEpDispatchInputs_t,
    pub(super) outputs: ncclEpDispatchOutputs_t,
    pub(super) info: Option<ncclEpLayoutInfo_t>,
    pub(super) send_only: bool,
    pub(super) tokens: Tensor,
    pub(super) out_tokens: Tensor,
    pub(super) data_type: DataType,
    /// Recipe FWD only.
    pub(super) scales: Option<Scales>,
}

impl Arguments {
    /// Bytes of one token row.
    pub(super) fn row_bytes(&self) -> Outcome<usize> {
        let hidden = self.tokens.extent(1);
        hidden.checked_mul(self.data_type.size()).ok_or_else(|| {
            let class = FailureClass::UndefinedBehaviour;
            Refusal::argument(class, "inputs.tokens", "a row fits memory", "fewer", hidden)
        })
    }
}

/// # Safety
/// The C contract of `ncclEpDispatch`.
pub(super) unsafe fn dispatch(
    scope: &Scope,
    handle: ncclEpHandle_t,
    inputs: *const ncclEpDispatchInputs_t,
    outputs: *const ncclEpDispatchOutputs_t,
    layout_info: *const ncclEpLayoutInfo_t,
    config: *const ncclEpDispatchConfig_t,
) -> Outcome {
    // SAFETY: this function's contract, here and below.
    let inputs = unsafe { structs::required(inputs, "inputs")? };
    // SAFETY: as above.
    let outputs = unsafe { structs::required(outputs, "outputs")? };
    // SAFETY: as above.
    let info = unsafe { structs::optional(layout_info, "layout_info")? };
    // SAFETY: as above.
    let config = unsafe { structs::optional(config, "config")? }.unwrap_or_default();
    // SAFETY: as above.
    let handle = unsafe { handle::live(handle, FailureClass::UndefinedBehaviour)? };
    let (group, ready) = handle.view()?;
    scope.enter(group.member);
    // SAFETY: as above.
    let tokens = unsafe { Tensor::required(inputs.tokens, "inputs.tokens")? };
    let ret = FailureClass::Return;
    tokens.require_ndim(ret, 2)?;
    // SAFETY: as above.
    let given = unsafe { recipe_tensors(&inputs, &outputs)? };
    let (data_type, out_tokens, scales) = recipe(&group, ready, &tokens, &given, &config)?;
    let backward = config.pass_direction != ncclEpPassDir_t::NCCL_EP_FWD_PASS;
    let arguments = Arguments {
        inputs,
        outputs,
        info,
        send_only: config.send_only != 0,
        tokens,
        out_tokens,
        data_type,
        scales,
    };
    match group.settings.algorithm {
        Algorithm::LowLatency => {
            require(!backward, || {
                let rule = "low latency has no backward pass";
                let found = config.pass_direction.0;
                Refusal::usage(ret, "pass_direction", rule, "FWD (0)", found)
            })?;
            // SAFETY: as above.
            unsafe { dispatch_ll::dispatch(&group, ready, &arguments) }
        }
        Algorithm::HighThroughput => {
            require(!backward, || {
                Refusal::unsupported("backward dispatch", ncclResult_t::ncclInvalidUsage)
            })?;
            // SAFETY: as above.
            unsafe { dispatch_ht::dispatch(&group, ready, &arguments) }
        }
    }
}

/// The tensors that recipes look at, checked as descriptors.
///
/// # Safety
/// As [`Tensor::optional`].
unsafe fn recipe_tensors(
    inputs: &ncclEpDispatchInputs_t,
    outputs: &ncclEpDispatchOutputs_t,
) -> Outcome<scales::Given> {
    // SAFETY: this function's contract.
    let optional = |given, name| unsafe { Tensor::optional(given, name) };
    Ok(scales::Given {
        out_tokens: optional(outputs.tokens, "outputs.tokens")?,
        in_scales: optional(inputs.scales, "inputs.scales")?,
        out_scales: optional(outputs.scales, "outputs.scales")?,
    })
}

/// The recipe's rules (EP 5): the type of the tokens, their output, and scales if they have any.
fn recipe(
    group: &View<'_>,
    ready: &Ready,
    tokens: &Tensor,
    given: &scales::Given,
    config: &ncclEpDispatchConfig_t,
) -> Outcome<(DataType, Tensor, Option<Scales>)> {
    let ret = FailureClass::Return;
    match config.quant_recipe {
        ncclEpDispQuant_t::NCCL_EP_DISP_QUANT_NONE => {
            let (data_type, out_tokens) = recipe_none(tokens, given)?;
            Ok((data_type, out_tokens, None))
        }
        ncclEpDispQuant_t::NCCL_EP_DISP_QUANT_FWD => {
            let (data_type, out_tokens, scales) =
                scales::forwarded(group, ready, tokens, given, config)?;
            Ok((data_type, out_tokens, Some(scales)))
        }
        ncclEpDispQuant_t::NCCL_EP_DISP_QUANT_DS_FP8E3M4 => {
            let feature = "dispatch quantisation";
            Err(Refusal::unsupported(feature, ncclResult_t::ncclInvalidArgument))
        }
        other => {
            let rule = "the recipe is a known one";
            Err(Refusal::argument(ret, "quant_recipe", rule, "0 to 2", other.0))
        }
    }
}

/// EP 5.1.
fn recipe_none(tokens: &Tensor, given: &scales::Given) -> Outcome<(DataType, Tensor)> {
    let ret = FailureClass::Return;
    tokens.require_type(ret, TOKEN_TYPES)?;
    let out_tokens = given.out_tokens.ok_or_else(|| Refusal::null(ret, "outputs.tokens"))?;
    let data_type = TOKEN_TYPES.iter().find(|t| t.as_raw() == tokens.data_type()).copied();
    let data_type = data_type.unwrap_or(DataType::Bfloat16);
    out_tokens.require_type(ret, &[data_type])?;
    let scales = [given.in_scales, given.out_scales].into_iter().flatten().next();
    require(scales.is_none(), || {
        let name = scales.map_or("scales", |tensor| tensor.name());
        Refusal::argument(ret, name, "recipe NONE has no scales", "NULL", "a tensor")
    })?;
    Ok((data_type, out_tokens))
}

/// Checks `H*es <= MTB` and the token count of a dispatch; both are ASSERTs in both algorithms.
pub(super) fn check_tokens(
    arguments: &Arguments,
    updated: usize,
    max_tokens: usize,
    max_token_bytes: usize,
) -> Outcome {
    let assert = FailureClass::Assert;
    let tokens = arguments.tokens.extent(0);
    require(tokens == updated, || {
        let rule = "there are as many tokens as rows of topk_idx in the last update";
        Refusal::argument(assert, "inputs.tokens", rule, updated, tokens)
    })?;
    require(tokens <= max_tokens, || {
        let rule = "a rank dispatches at most max_dispatch_tokens_per_rank tokens";
        let expected = format_args!("at most {max_tokens}").to_string();
        Refusal::argument(assert, "inputs.tokens", rule, expected, tokens)
    })?;
    let bytes = arguments.row_bytes()?;
    require(bytes <= max_token_bytes, || {
        let rule = "a row is at most max_token_bytes long";
        let expected = format_args!("at most {max_token_bytes} bytes").to_string();
        Refusal::argument(assert, "inputs.tokens", rule, expected, bytes)
    })
}

/// Whether received ids are global; anything else than 0 to 2 traps in the vendor's library.
pub(super) fn global_ids(info: Option<&ncclEpLayoutInfo_t>) -> Outcome<bool> {
    match info.map_or(ncclEpExpertIdKind_t::NCCL_EP_EXPERT_ID_AUTO, |i| i.recv_topk_idx_kind) {
        ncclEpExpertIdKind_t::NCCL_EP_EXPERT_ID_AUTO
        | ncclEpExpertIdKind_t::NCCL_EP_EXPERT_ID_LOCAL => Ok(false),
        ncclEpExpertIdKind_t::NCCL_EP_EXPERT_ID_GLOBAL => Ok(true),
        other => {
            let rule = "received ids are local or global";
            let trap = FailureClass::Trap;
            Err(Refusal::argument(trap, "recv_topk_idx_kind", rule, "0 to 2", other.0))
        }
    }
}
