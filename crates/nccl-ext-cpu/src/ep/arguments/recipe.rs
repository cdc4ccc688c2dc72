//! The recipe of a dispatch (EP 5): whether rows travel as they are, or with scales.

use nccl_ep_sys::{
    ncclEpDispQuant_t, ncclEpDispatchConfig_t, ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t,
};
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use super::scales::{self, RecipeTensors, Scales};
use crate::ep::numerics::{TOKEN_TYPES, token_type};
use crate::ep::settings::{HandleSettings, Settings};
use crate::ep::tensor::Tensor;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The tensors that recipes look at, checked as descriptors.
///
/// # Safety
/// As [`Tensor::optional`].
pub(crate) unsafe fn recipe_tensors(
    inputs: &ncclEpDispatchInputs_t,
    outputs: &ncclEpDispatchOutputs_t,
) -> Outcome<RecipeTensors> {
    // SAFETY: this function's contract.
    let optional = |given, name| unsafe { Tensor::optional(given, name) };
    Ok(RecipeTensors {
        out_tokens: optional(outputs.tokens, "outputs.tokens")?,
        in_scales: optional(inputs.scales, "inputs.scales")?,
        out_scales: optional(outputs.scales, "outputs.scales")?,
    })
}

/// The recipe's rules (EP 5): the type of the tokens, their output, and scales if they have any.
pub(crate) fn recipe(
    settings: &Settings,
    handle: &HandleSettings,
    tokens: &Tensor,
    given: &RecipeTensors,
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
                scales::forwarded(settings, handle, tokens, given, config)?;
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
fn recipe_none(tokens: &Tensor, given: &RecipeTensors) -> Outcome<(DataType, Tensor)> {
    let ret = FailureClass::Return;
    tokens.require_type(ret, TOKEN_TYPES)?;
    let out_tokens = given.out_tokens.ok_or_else(|| Refusal::null(ret, "outputs.tokens"))?;
    let data_type = token_type(tokens.data_type());
    out_tokens.require_type(ret, &[data_type])?;
    let scales = [given.in_scales, given.out_scales].into_iter().flatten().next();
    require(scales.is_none(), || {
        let name = scales.map_or("scales", |tensor| tensor.name());
        Refusal::argument(ret, name, "recipe NONE has no scales", "NULL", "a tensor")
    })?;
    Ok((data_type, out_tokens))
}
