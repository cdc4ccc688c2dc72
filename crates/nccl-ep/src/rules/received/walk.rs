use nccl_ext_test::stub::ep as stub;

use crate::rules::RuleInfo;
use crate::rules::walk_support::assert_names;
use crate::{ExpertIdKind, Placement, ReceivedExperts};

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    if rule.name != "received.rows" {
        return false;
    }
    stub::take_calls();
    let placement = Placement::new(8, 4).unwrap();
    for (topk, rows) in [(2, 3), (usize::MAX, 2)] {
        let ids = [0_i64; 5];
        let made = ReceivedExperts::new(&ids, topk, rows, 0, placement, ExpertIdKind::Local);
        assert_names(rule, made.map(drop));
    }
    true
}
