//! Making sure that all ranks ask for the same thing.
//!
//! The library compares hardly anything between ranks: a group whose ranks were configured
//! differently corrupts memory or hangs (EP 2.1).

use nccl_ext_core::{Comm, Result};

use crate::geometry::GroupFacts;
use crate::rules;
use crate::rules::agreement::{AgreementFacts, RULES};

const FIELDS: usize = 25;

/// Everything that must be equal, by name. `compiles`: whether this rank could compile kernels.
fn fields(facts: &GroupFacts<'_>, compiles: bool) -> [(&'static str, u64); FIELDS] {
    let GroupFacts { config, environment, .. } = facts;
    [
        ("algorithm", config.algorithm as u64),
        ("num_experts", config.num_experts.into()),
        ("max_dispatch_tokens_per_rank", config.max_dispatch_tokens_per_rank.into()),
        ("max_recv_tokens_per_rank", config.max_recv_tokens_per_rank.into()),
        ("max_token_bytes", config.max_token_bytes.into()),
        ("rdma_buffer_size", config.rdma_buffer_size),
        ("num_qp_per_rank", config.num_qp_per_rank.into()),
        ("max_num_sms", config.max_num_sms.into()),
        ("enable_mask", config.enable_mask.into()),
        ("zero_copy", config.zero_copy as u64),
        ("overflow_policy", config.overflow_policy as u64),
        ("num_topk", config.num_topk.into()),
        ("num_channels", config.num_channels.into()),
        ("timeout_ns", config.timeout_ns),
        ("SMs of the device", facts.device_sms),
        ("ranks of a load/store team", facts.lsa),
        ("NCCL_EP_COMM_SMS", environment.comm_sms.unwrap_or(0)),
        ("NCCL_EP_HT_EM_LOCAL_DUP", environment.local_dup.into()),
        ("NCCL_EP_HT_EM_NVLINK_DUP", environment.nvlink_dup.into()),
        ("NCCL_EP_DISABLE_GUARD", environment.no_guard.into()),
        ("NCCL_EP_TOKENS_PER_CHUNK", environment.tokens_per_chunk),
        ("NCCL_EP_TIMEOUT_MS", environment.timeout_ms),
        ("NCCL_EP_SHUFFLE_SMS", environment.shuffle_sms),
        ("NCCL_EP_PREPROCESS_NUM_SMS", environment.preprocess_sms),
        ("what the run-time compiler needs", compiles.into()),
    ]
}

/// Compares the configuration of all ranks. Collective; every rank gets the same answer.
pub(crate) fn on_configuration(comm: &Comm, facts: &GroupFacts<'_>, compiles: bool) -> Result<()> {
    let own = fields(facts, compiles);
    if comm.size() == 1 {
        return Ok(());
    }
    let values = comm.all_gather_words(&own.map(|(_, value)| value))?;
    let facts = AgreementFacts { names: &own.map(|(name, _)| name), values: &values };
    rules::check(RULES, |broken| broken(&facts))
}
