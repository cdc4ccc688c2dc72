//! `ncclEpCombine`: the arguments, as far as both algorithms read them alike (EP 4.0).

use nccl_ep_sys::{
    ncclEpCombQuant_t, ncclEpCombineConfig_t, ncclEpCombineInputs_t, ncclEpCombineOutputs_t,
    ncclEpHandle_t, ncclEpPassDir_t,
};
use nccl_ext_core::raw::{cudaStream_t, ncclResult_t};

use crate::entry::Scope;
use crate::ep::arguments::CombineArguments;
use crate::ep::numerics::{TOKEN_TYPES, token_type};
use crate::ep::refusals::require_forward;
use crate::ep::settings::Algorithm;
use crate::ep::tensor::Tensor;
use crate::ep::{handle, ht, ll, structs};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// # Safety
/// The C contract of `ncclEpCombine`.
pub(crate) unsafe fn combine(
    scope: &Scope,
    handle: ncclEpHandle_t,
    inputs: *const ncclEpCombineInputs_t,
    outputs: *const ncclEpCombineOutputs_t,
    config: *const ncclEpCombineConfig_t,
    stream: cudaStream_t,
) -> Outcome {
    let ret = FailureClass::Return;
    // SAFETY: this function's contract, here and below.
    let inputs = unsafe { structs::required(inputs, "inputs")? };
    // SAFETY: as above.
    let outputs = unsafe { structs::required(outputs, "outputs")? };
    // SAFETY: as above.
    let config = unsafe { structs::optional(config, "config")? }.unwrap_or_default();
    // SAFETY: as above.
    let handle = unsafe { handle::live(handle, FailureClass::UndefinedBehaviour)? };
    let (group, ready) = handle.view()?;
    scope.enter(group.member);
    // SAFETY: as above.
    let tokens = unsafe { Tensor::required(inputs.tokens, "inputs.tokens")? };
    // SAFETY: as above.
    let scales = unsafe { Tensor::optional(inputs.scales, "inputs.scales")? };
    match config.quant_recipe {
        ncclEpCombQuant_t::NCCL_EP_COMB_QUANT_NONE => {}
        // As on a device without FP4 arithmetic (EP 5.4).
        ncclEpCombQuant_t::NCCL_EP_COMB_QUANT_NVFP4 => {
            let feature = "combine quantisation";
            return Err(
                Refusal::unsupported(feature, ncclResult_t::ncclInvalidUsage).with_class(ret)
            );
        }
        other => {
            let rule = "the recipe is a known one";
            return Err(Refusal::argument(ret, "quant_recipe", rule, "0 or 1", other.0));
        }
    }
    require(scales.is_none(), || {
        Refusal::argument(ret, "inputs.scales", "recipe NONE has no scales", "NULL", "a tensor")
    })?;
    tokens.require_type(ret, TOKEN_TYPES)?;
    let data_type = token_type(tokens.data_type());
    let send_only = config.send_only != 0;
    let arguments = CombineArguments { inputs, outputs, send_only, tokens, data_type };
    match group.settings.algorithm {
        Algorithm::LowLatency => {
            require_forward(config.pass_direction)?;
            // SAFETY: as above.
            unsafe { ll::combine(&group, &ready.settings, &ready.low, &arguments, stream) }
        }
        Algorithm::HighThroughput => {
            // Here only 1 is backward (EP 1.2).
            require(config.pass_direction != ncclEpPassDir_t::NCCL_EP_BWD_PASS, || {
                Refusal::unsupported("backward combine", ncclResult_t::ncclInvalidUsage)
            })?;
            // SAFETY: as above.
            unsafe { ht::combine(&group, &ready.settings, &ready.high, &arguments, stream) }
        }
    }
}
