//! Rules between settings: of a group (EP 2.1) and of a handle's top-k (EP 3.2).

use nccl_ep_sys::ncclEpGroupConfig_t;

use super::geometry;
use super::group::{Algorithm, EmMode, Settings};
use super::handle::Layout;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// EP 2.1 #18, 3.2 LL b.
pub(crate) fn check_groups(settings: &Settings) -> Outcome {
    let groups = geometry::ll_groups(settings.experts, settings.comm_sms);
    require((1..=14).contains(&groups), || {
        Refusal::usage(
            FailureClass::Return,
            "num_experts",
            "a low-latency block serves 1 to 14 experts",
            format_args!("at most {} experts on {} SMs", 14 * settings.comm_sms, settings.comm_sms),
            settings.experts,
        )
    })
}

/// EP 2.1 #21 to #24.
pub(crate) fn check_budget(config: &ncclEpGroupConfig_t, settings: &Settings) -> Outcome {
    let throw = FailureClass::Throw;
    let high = settings.algorithm == Algorithm::HighThroughput;
    let (recv, tokens) = (config.max_recv_tokens_per_rank, config.max_dispatch_tokens_per_rank);
    require(!high || recv == 0 || recv >= tokens, || {
        let rule = "a rank can receive what one rank can send";
        let expected = format_args!("0 or at least {tokens}").to_string();
        Refusal::argument(throw, "max_recv_tokens_per_rank", rule, expected, recv)
    })?;
    require(settings.num_topk <= settings.experts, || {
        let rule = "a token has no more experts than there are";
        let expected = format_args!("at most {}", settings.experts).to_string();
        Refusal::argument(throw, "num_topk", rule, expected, settings.num_topk)
    })?;
    require(!(settings.eager && settings.drop), || {
        let rule = "without a receive budget nothing can be dropped";
        let expected = "TRAP, or max_recv_tokens_per_rank";
        Refusal::argument(throw, "overflow_policy", rule, expected, "DROP without a budget")
    })?;
    require(!settings.eager || u32::try_from(settings.max_recv).is_ok(), || {
        let rule = "ranks * max_dispatch_tokens_per_rank * num_topk fits 32 bits";
        let expected = format_args!("at most {}", u32::MAX).to_string();
        Refusal::argument(throw, "max_recv_tokens_per_rank", rule, expected, settings.max_recv)
    })
}

/// EP 3.2 LL a to e.
pub(crate) fn check_low_latency_topk(
    settings: &Settings,
    layout: Layout,
    num_topk: i32,
) -> Outcome<usize> {
    let ret = FailureClass::Return;
    let most = settings.experts.min(32);
    let topk = usize::try_from(num_topk).ok().filter(|topk| (1..=most).contains(topk));
    let topk = topk.ok_or_else(|| {
        let expected = format_args!("1 to {most}").to_string();
        let rule = "a low-latency token has at most 32 experts, and no more than there are";
        Refusal::argument(ret, "num_topk", rule, expected, num_topk)
    })?;
    check_groups(settings)?;
    let warps = geometry::ll_warps(geometry::ll_groups(settings.experts, settings.comm_sms));
    require(topk < warps, || {
        let expected = format_args!("at most {}", warps.saturating_sub(1)).to_string();
        let rule = "each expert of a token takes a warp beside the control warp";
        Refusal::usage(ret, "num_topk", rule, expected, topk)
    })?;
    let buffer = geometry::ll_buffer(settings, layout == Layout::RankMajor, topk);
    let names =
        ["dispatch send", "dispatch receive", "combine send", "combine receive"].into_iter();
    for (region, bytes) in names.zip(buffer.regions) {
        require(bytes.is_multiple_of(16), || {
            let rule = "each region of the communication buffer is a multiple of 16 bytes; \
                        a multiple of 1024 always fits";
            let found = format_args!("{bytes} bytes of {region}").to_string();
            let throw = FailureClass::Throw;
            Refusal::argument(throw, "max_token_bytes", rule, "a multiple of 16", found)
        })?;
    }
    let given = u128::from(settings.rdma_buffer_size);
    require(given == 0 || given >= buffer.total, || {
        let rule = "an explicit buffer holds every handle";
        let expected = format_args!("at least {}", buffer.total).to_string();
        Refusal::usage(ret, "rdma_buffer_size", rule, expected, given)
    })?;
    Ok(topk)
}

/// EP 3.2 HT a to d.
pub(crate) fn check_high_throughput_topk(
    settings: &Settings,
    layout: Layout,
    alignment: usize,
    num_topk: i32,
) -> Outcome<usize> {
    let ret = FailureClass::Return;
    let topk = usize::try_from(num_topk)
        .ok()
        .filter(|&topk| topk > 0)
        .ok_or_else(|| Refusal::usage(ret, "num_topk", "the number is given", ">= 1", num_topk))?;
    require(settings.num_topk == 0 || topk <= settings.num_topk, || {
        let rule = "the group was created for that many";
        let expected = format_args!("at most {}", settings.num_topk).to_string();
        Refusal::usage(ret, "num_topk", rule, expected, topk)
    })?;
    let expert_major = layout == Layout::ExpertMajor;
    require(settings.num_topk > 0 || !(settings.eager && expert_major), || {
        let rule = "without a receive budget an expert-major group names its top-k";
        Refusal::usage(ret, "num_topk", rule, "num_topk in the group configuration", "none")
    })?;
    let dup = settings.em_mode != EmMode::LocalPermute;
    let worst = (settings.ranks as u64 * settings.max_tokens as u64).saturating_mul(topk as u64);
    require(!dup || settings.zero_copy_on || settings.max_recv >= worst, || {
        let rule = "a forced duplication mode stages the worst case unless zero_copy is ON";
        let expected = format_args!("at least {worst}").to_string();
        let name = "max_recv_tokens_per_rank";
        Refusal::argument(FailureClass::Throw, name, rule, expected, settings.max_recv)
    })?;
    // The vendor's padding would write past the budget (EP 4.12).
    let aligned = alignment <= 1 || settings.max_recv.is_multiple_of(alignment as u64);
    require(!(dup && expert_major && settings.drop) || aligned, || {
        let rule = "when a duplication mode drops, the budget is a multiple of the alignment";
        let expected = format_args!("a multiple of {alignment}").to_string();
        let (class, name) = (FailureClass::UndefinedBehaviour, "max_recv_tokens_per_rank");
        Refusal::argument(class, name, rule, expected, settings.max_recv)
    })?;
    Ok(topk)
}
