use nccl_ext_core::Error;
use nccl_ext_test::stub::ep as stub;

use crate::environment::Environment;
use crate::rules::RuleInfo;
use crate::rules::walk_support::{assert_names, ht, ll};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let flags = Environment { local_dup: true, nvlink_dup: true, ..Environment::default() };
    let usual = Environment::default();
    let (ranks, config, environment) = match rule.name {
        "group.experts-exist" => (4, ht().num_experts(0), usual),
        "group.ll-experts" => (4, ll().num_experts(65536), usual),
        "group.experts-divide" => (3, ll().num_experts(256), usual),
        "group.tokens-exist" => (4, ll().max_dispatch_tokens_per_rank(0), usual),
        "group.token-bytes-exist" => (4, ll().max_token_bytes(0), usual),
        "group.ht-token-bytes" => (4, ht().max_token_bytes(24), usual),
        "group.ht-experts-team" => (2, ht().num_experts(2), usual),
        "group.ht-budget" => (4, ht().max_recv_tokens_per_rank(3), usual),
        "group.topk" => (4, ll().num_topk(9), usual),
        "group.eager-drop" => {
            let config = ht().max_recv_tokens_per_rank(0);
            (4, config.overflow_policy(OverflowPolicy::Drop), usual)
        }
        "group.eager-bound" => {
            let config = ht().max_recv_tokens_per_rank(0).num_topk(8);
            (4, config.max_dispatch_tokens_per_rank(1 << 27), usual)
        }
        "group.sms" => (4, ll().max_num_sms(133), usual),
        "group.ht-sms" => (4, ht().max_num_sms(17), usual),
        "group.ll-sms" => (4, ll().max_num_sms(1), usual),
        "group.ht-mask" => (4, ht().enable_mask(true), usual),
        "group.em-flags" => (4, ht(), flags),
        "group.zero-copy" => (4, ll().zero_copy(ZeroCopyMode::On), usual),
        _ => return false,
    };
    let comm = stub::comm(ranks);
    assert_names(rule, Group::create_in(&comm, &config, environment, None).map(drop));
    true
}

/// EP 7.1: two ranks were seen to work up to 34 SMs, any number up to 16; the environment counts.
#[test]
fn ht_sms_known_to_work() {
    let attempt = |ranks, sms, comm_sms| {
        let environment = Environment { comm_sms, ..Environment::default() };
        let made = Group::create_in(&stub::comm(ranks), &ht().max_num_sms(sms), environment, None);
        made.map(|group| group.destroy().map_err(Error::from).unwrap()).is_ok()
    };
    assert!(attempt(4, 16, None) && attempt(2, 34, None) && attempt(4, 0, None));
    assert!(!attempt(4, 17, None) && !attempt(2, 35, None) && !attempt(2, 64, None));
    assert!(!attempt(4, 16, Some(32)) && attempt(4, 32, Some(16)));
    stub::take_calls();
}
