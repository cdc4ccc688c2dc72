//! What combine checks for both algorithms (EP 4.0).

use nccl_ep_sys::{ncclEpCombineInputs_t, ncclEpCombineOutputs_t};
use nccl_ext_core::DataType;

use crate::ep::tensor::Tensor;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The arguments of a combine whose tokens and recipe are fine.
pub(crate) struct CombineArguments {
    pub(crate) inputs: ncclEpCombineInputs_t,
    pub(crate) outputs: ncclEpCombineOutputs_t,
    pub(crate) send_only: bool,
    pub(crate) tokens: Tensor,
    pub(crate) data_type: DataType,
}

/// The output tokens: `[tokens, hidden]` of the inputs' type. The vendor's high-throughput kernels
/// do not look at the type.
///
/// # Safety
/// As [`Tensor::required`].
pub(crate) unsafe fn output(
    arguments: &CombineArguments,
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
