//! `ncclEpDispatch`: the arguments, as far as both algorithms read them alike (EP 4.0).

use nccl_ep_sys::{
    ncclEpDispatchConfig_t, ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t, ncclEpHandle_t,
    ncclEpLayoutInfo_t, ncclEpPassDir_t,
};
use nccl_ext_core::raw::{cudaStream_t, ncclResult_t};

use crate::entry::Scope;
use crate::ep::arguments::{DispatchArguments, recipe, recipe_tensors};
use crate::ep::refusals::require_forward;
use crate::ep::settings::Algorithm;
use crate::ep::tensor::Tensor;
use crate::ep::{handle, ht, ll, structs};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// # Safety
/// The C contract of `ncclEpDispatch`.
pub(crate) unsafe fn dispatch(
    scope: &Scope,
    handle: ncclEpHandle_t,
    inputs: *const ncclEpDispatchInputs_t,
    outputs: *const ncclEpDispatchOutputs_t,
    layout_info: *const ncclEpLayoutInfo_t,
    config: *const ncclEpDispatchConfig_t,
    stream: cudaStream_t,
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
    tokens.require_ndim(FailureClass::Return, 2)?;
    // SAFETY: as above.
    let given = unsafe { recipe_tensors(&inputs, &outputs)? };
    let (data_type, out_tokens, scales) =
        recipe(group.settings, &ready.settings, &tokens, &given, &config)?;
    let arguments = DispatchArguments {
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
            require_forward(config.pass_direction)?;
            // SAFETY: as above.
            unsafe { ll::dispatch(&group, &ready.settings, &ready.low, &arguments, stream) }
        }
        Algorithm::HighThroughput => {
            let forward = config.pass_direction == ncclEpPassDir_t::NCCL_EP_FWD_PASS;
            require(forward, || {
                Refusal::unsupported("backward dispatch", ncclResult_t::ncclInvalidUsage)
            })?;
            // SAFETY: as above.
            unsafe { ht::dispatch(&group, &ready.settings, &ready.high, &arguments, stream) }
        }
    }
}
