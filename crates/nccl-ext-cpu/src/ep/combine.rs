//! What combine checks for both algorithms (EP 4.0).

use nccl_ep_sys::{
    ncclEpCombQuant_t, ncclEpCombineConfig_t, ncclEpCombineInputs_t, ncclEpCombineOutputs_t,
    ncclEpHandle_t, ncclEpPassDir_t,
};
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use super::handle;
use super::numerics::TOKEN_TYPES;
use super::settings::Algorithm;
use super::structs;
use super::tensor::Tensor;
use super::{combine_ht, combine_ll};
use crate::entry::Scope;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The arguments of a combine whose tokens and recipe are fine.
pub(super) struct Arguments {
    pub(super) inputs: ncclEpCombineInputs_t,
    pub(super) outputs: ncclEpCombineOutputs_t,
    pub(super) send_only: bool,
    pub(super) tokens: Tensor,
    pub(super) data_type: DataType,
}

/// # Safety
/// The C contract of `ncclEpCombine`.
pub(super) unsafe fn combine(
    scope: &Scope,
    handle: ncclEpHandle_t,
    inputs: *const ncclEpCombineInputs_t,
    outputs: *const ncclEpCombineOutputs_t,
    config: *const ncclEpCombineConfig_t,
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
    let data_type = TOKEN_TYPES.iter().find(|t| t.as_raw() == tokens.data_type()).copied();
    let data_type = data_type.unwrap_or(DataType::Bfloat16);
    let send_only = config.send_only != 0;
    let arguments = Arguments { inputs, outputs, send_only, tokens, data_type };
    let backward = config.pass_direction != ncclEpPassDir_t::NCCL_EP_FWD_PASS;
    match group.settings.algorithm {
        Algorithm::LowLatency => {
            require(!backward, || {
                let rule = "low latency has no backward pass";
                let found = config.pass_direction.0;
                Refusal::usage(ret, "pass_direction", rule, "FWD (0)", found)
            })?;
            // SAFETY: as above.
            unsafe { combine_ll::combine(&group, ready, &arguments) }
        }
        Algorithm::HighThroughput => {
            // Here only 1 is backward (EP 1.2).
            require(config.pass_direction != ncclEpPassDir_t::NCCL_EP_BWD_PASS, || {
                Refusal::unsupported("backward combine", ncclResult_t::ncclInvalidUsage)
            })?;
            // SAFETY: as above.
            unsafe { combine_ht::combine(&group, ready, &arguments) }
        }
    }
}

/// The output tokens: `[tokens, hidden]` of the inputs' type. The vendor's high-throughput kernels
/// do not look at the type.
///
/// # Safety
/// As [`Tensor::required`].
pub(super) unsafe fn output(
    arguments: &Arguments,
    tokens: usize,
    hidden: usize,
    wrong_type: FailureClass,
) -> Outcome<Tensor> {
    let assert = FailureClass::Assert;
    // SAFETY: this function's contract.
    let out = unsafe { Tensor::required(arguments.outputs.tokens, "outputs.tokens")? };
    require(out.ndim() > 0, || {
        let ret = FailureClass::Return;
        Refusal::argument(ret, "outputs.tokens", "the number of extents", 2, out.ndim())
    })?;
    out.require_shape(assert, &[tokens, hidden])?;
    out.require_type(wrong_type, &[arguments.data_type])?;
    Ok(out)
}
