//! What an update of a high-throughput handle refuses, before and after the ranks meet.

use nccl_ext_core::Error;

use crate::ep::ht::placement::{Placement, PlacementRules};
use crate::ep::settings::{EmMode, Layout, Settings};
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::Member;

/// A rank's tokens are no more than it may dispatch.
pub(super) fn check_tokens(settings: &Settings, tokens: usize) -> Outcome {
    let most = settings.max_tokens;
    require(tokens <= most, || {
        let rule = "a rank dispatches at most max_dispatch_tokens_per_rank tokens";
        let expected = format_args!("at most {most}").to_string();
        Refusal::argument(FailureClass::Assert, "topk_idx", rule, expected, tokens)
    })
}

/// EP 3.5.2, 8.
pub(super) fn check_duplication(settings: &Settings, layout: Layout) -> Outcome {
    if settings.em_mode == EmMode::LocalPermute || layout != Layout::ExpertMajor {
        return Ok(());
    }
    let local = settings.local_experts;
    let assert = FailureClass::Assert;
    require(local.is_power_of_two(), || {
        let rule = "the expert-major duplication modes need a power of two of experts on a rank";
        Refusal::argument(assert, "num_experts", rule, "a power of two a rank", local)
    })?;
    require(settings.ranks <= 128, || {
        let rule = "the expert-major duplication modes reach at most 128 ranks";
        Refusal::argument(assert, "comm", rule, "at most 128 ranks", settings.ranks)
    })
}

/// Without DROP every rank's total must fit its budget (EP 3.5.3, 4.12). Every rank knows all
/// totals, so nobody goes on to wait for a rank that is overrun.
pub(super) fn check_overflow(
    member: &Member,
    settings: &Settings,
    rules: &PlacementRules,
    placement: &Placement,
) -> Outcome {
    if rules.drop {
        return Ok(());
    }
    // Slots are 32 bits wide; a larger total could not be stored anyway.
    let limit = u64::from(u32::MAX) - 1;
    let padding = (settings.local_experts as u64).saturating_mul(rules.alignment.max(1) - 1);
    let zones_budget = match settings.eager && rules.permute {
        true => rules.budget.saturating_add(padding),
        false => rules.budget,
    };
    let flat_counts = !rules.expert_major || rules.permute;
    let overrun = (0..settings.ranks).find_map(|rank| {
        let (flat, zones) = (placement.flat_totals[rank], placement.zone_totals[rank]);
        if flat_counts && flat > rules.budget.min(limit) {
            return Some((rank, flat, rules.budget));
        }
        let over = rules.expert_major && zones > zones_budget.min(limit);
        over.then_some((rank, zones, zones_budget))
    });
    let Some((rank, total, budget)) = overrun else { return Ok(()) };
    let refusal = Refusal::usage(
        FailureClass::Trap,
        "max_recv_tokens_per_rank",
        "a rank receives no more rows than its budget, unless the policy is DROP",
        format_args!("at most {budget} rows on rank {rank}"),
        total,
    );
    let error = refusal.to_error("ncclEpUpdateHandle");
    if member.rank() == rank {
        member.fail(&error);
        return Err(refusal);
    }
    let error = Refusal::error(Error::PeerFailed { rank, error: error.into() });
    // In the duplication modes every rank checks every destination and traps as well.
    Err(if flat_counts { error } else { error.with_class(FailureClass::Trap) })
}
