use nccl_ext_test::stub::ep as stub;

use crate::plan::{Setup, memory};
use crate::rules::RuleInfo;
use crate::rules::walk_support::{assert_names, ht, ll};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let setup = |ranks| Setup::new(ll().num_topk(2), ranks, 512);
    let setup = match rule.name {
        "plan.ranks" => setup(1 << 31),
        "plan.team" => setup(4).team_ranks(3),
        "plan.device-sms" => setup(4).device_sms(0),
        "plan.hidden" => Setup::new(ll(), 4, 0),
        "plan.token-cap" => setup(4).token_cap(3),
        "plan.bytes" => {
            let config = ht().num_experts(1 << 31).num_topk(8).max_recv_tokens_per_rank(u32::MAX);
            Setup::new(config, 4, 512).layout(Layout::Flat)
        }
        _ => return false,
    };
    stub::take_calls();
    assert_names(rule, memory(&setup).map(drop));
    true
}
