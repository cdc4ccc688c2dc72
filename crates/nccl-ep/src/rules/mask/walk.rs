use nccl_ext_test::stub::ep as stub;

use crate::rules::RuleInfo;
use crate::rules::walk_support::{STREAM, StubGroup, assert_names, ll};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let masked = ll().enable_mask(true);
    let (ranks, config) = match rule.name {
        "mask.enabled" => (4, ll()),
        "mask.buffer" | "mask.entries" | "mask.clean-handle" => (4, masked),
        "mask.clean-ranks" => (257, masked.num_experts(514).rdma_buffer_size(1 << 30)),
        "mask.clean-units" => {
            let odd = masked.max_dispatch_tokens_per_rank(1).max_token_bytes(512);
            (1, odd.rdma_buffer_size(1 << 30).num_experts(4))
        }
        _ => return false,
    };
    let group = StubGroup::new(ranks, &config, Layout::ExpertMajor).group;
    stub::take_calls();
    match rule.name {
        "mask.enabled" => {
            let mut mask = [0_i32; 4];
            assert_names(rule, group.mask_query(&mut mask, STREAM));
            assert_names(rule, group.mask_update(&[true; 4], STREAM));
            assert_names(rule, group.mask_clean(STREAM));
            assert_names(rule, group.get_async_error().map(drop));
            assert_names(rule, group.error_clear());
        }
        "mask.buffer" => {
            assert_names(rule, group.mask_query(&mut [0_i32; 3], STREAM));
            assert_names(rule, group.mask_query(&mut [0_i64; 4], STREAM));
        }
        "mask.entries" => assert_names(rule, group.mask_update(&[true; 3], STREAM)),
        _ => assert_names(rule, group.mask_clean(STREAM)),
    }
    true
}
