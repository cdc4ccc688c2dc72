//! What dispatch checks for both algorithms (EP 4.0).

use nccl_ep_sys::{
    ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t, ncclEpExpertIdKind_t, ncclEpLayoutInfo_t,
};
use nccl_ext_core::DataType;

use super::scales::Scales;
use crate::ep::refusals::check_row_fits;
use crate::ep::tensor::Tensor;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The arguments of a dispatch whose tokens and recipe are fine.
pub(crate) struct DispatchArguments {
    pub(crate) inputs: ncclEpDispatchInputs_t,
    pub(crate) outputs: ncclEpDispatchOutputs_t,
    pub(crate) info: Option<ncclEpLayoutInfo_t>,
    pub(crate) send_only: bool,
    pub(crate) tokens: Tensor,
    pub(crate) out_tokens: Tensor,
    pub(crate) data_type: DataType,
    /// Recipe FWD only.
    pub(crate) scales: Option<Scales>,
}

impl DispatchArguments {
    /// Bytes of one token row.
    pub(crate) fn row_bytes(&self) -> Outcome<usize> {
        let hidden = self.tokens.extent(1);
        hidden.checked_mul(self.data_type.size()).ok_or_else(|| {
            let class = FailureClass::UndefinedBehaviour;
            Refusal::argument(class, "inputs.tokens", "a row fits memory", "fewer", hidden)
        })
    }
}

/// Checks `H*es <= MTB` and the token count of a dispatch; both are ASSERTs in both algorithms.
pub(crate) fn check_tokens(
    arguments: &DispatchArguments,
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
    check_row_fits(assert, arguments.row_bytes()?, max_token_bytes)
}

/// Whether received ids are global; anything else than 0 to 2 traps in the vendor's library.
pub(crate) fn global_ids(info: Option<&ncclEpLayoutInfo_t>) -> Outcome<bool> {
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
