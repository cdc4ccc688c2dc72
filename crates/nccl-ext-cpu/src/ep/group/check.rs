//! What a rank checks on its own when it creates a group.

use nccl_ep_sys::{ncclEpAlgorithm_t, ncclEpGroupConfig_t};

use crate::driver::SM_COUNT;
use crate::ep::environment::Environment;
use crate::ep::settings::{Algorithm, Settings, check_groups, resolve};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The rules that come before the out pointer is set (EP 2.1, up to #10), and the algorithm.
pub(super) fn algorithm(config: &ncclEpGroupConfig_t) -> Outcome<Algorithm> {
    let assert = FailureClass::Assert;
    let algorithm = match config.algorithm {
        ncclEpAlgorithm_t::NCCL_EP_ALGO_LOW_LATENCY => Algorithm::LowLatency,
        ncclEpAlgorithm_t::NCCL_EP_ALGO_HIGH_THROUGHPUT => Algorithm::HighThroughput,
        other => {
            let rule = "the algorithm is one of the two";
            return Err(Refusal::argument(assert, "algorithm", rule, "0 or 1", other.0));
        }
    };
    positive(config.num_experts, "num_experts")?;
    positive(config.max_token_bytes, "max_token_bytes")?;
    let high = algorithm == Algorithm::HighThroughput;
    require(!high || config.max_token_bytes.is_multiple_of(16), || {
        Refusal::argument(
            FailureClass::Return,
            "max_token_bytes",
            "high throughput moves rows in units of 16 bytes",
            "a multiple of 16",
            config.max_token_bytes,
        )
    })?;
    positive(config.max_dispatch_tokens_per_rank, "max_dispatch_tokens_per_rank")?;
    Ok(algorithm)
}

fn positive(value: u32, name: &str) -> Outcome {
    require(value > 0, || {
        Refusal::argument(FailureClass::Assert, name, "the value is positive", ">= 1", value)
    })
}

/// Far above any model, far below what would not fit memory.
const MOST_EXPERTS: u32 = 1 << 20;

/// The rules that come before the ranks meet, and the settings.
pub(super) fn settings(
    ranks: usize,
    algorithm: Algorithm,
    config: &ncclEpGroupConfig_t,
    environment: &Environment,
) -> Outcome<Settings> {
    let ret = FailureClass::Return;
    require(config.alloc.alloc_fn.is_some() == config.alloc.free_fn.is_some(), || {
        let rule = "allocation and free are given together";
        Refusal::usage(ret, "alloc", rule, "both functions or neither", "one of them")
    })?;
    require(config.num_experts <= MOST_EXPERTS, || {
        let rule = "this backend keeps counts for every expert";
        Refusal::usage(ret, "num_experts", rule, MOST_EXPERTS, config.num_experts)
    })?;
    require(config.max_num_sms <= SM_COUNT, || {
        let expected = format_args!("at most {SM_COUNT}").to_string();
        let rule = "the device has that many multiprocessors";
        Refusal::usage(ret, "max_num_sms", rule, expected, config.max_num_sms)
    })?;
    let settings = resolve(ranks, algorithm, config, environment);
    if algorithm == Algorithm::LowLatency {
        check_groups(&settings)?;
    }
    Ok(settings)
}

/// The environment forces one expert-major mode at most. The vendor's library looks at it when the
/// ranks have met.
pub(super) fn modes(environment: &Environment) -> Outcome {
    let ret = FailureClass::Return;
    require(!(environment.local_dup && environment.nvlink_dup), || {
        let rule = "one of the expert-major modes is forced at most";
        let variables = "NCCL_EP_HT_EM_LOCAL_DUP, NCCL_EP_HT_EM_NVLINK_DUP";
        Refusal::usage(ret, variables, rule, "one of them on", "both on")
    })
}
