use nccl_ext_test::stub::ep as stub;

use crate::rules::RuleInfo;
use crate::rules::walk_support::{STREAM, StubGroup, assert_names, ht, ll};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let high = StubGroup::new(4, &ht(), Layout::Flat);
    let low = StubGroup::new(4, &ll(), Layout::ExpertMajor);
    let result = match rule.name {
        "snapshot.high-throughput" => low.handle().snapshot(STREAM),
        "snapshot.prepared" => high.handle().snapshot(STREAM),
        "snapshot.memory" => {
            let mut handle = high.handle();
            handle.update(high.ids(), None, STREAM).unwrap();
            handle.snapshot(STREAM)
        }
        _ => return false,
    };
    stub::take_calls();
    assert_names(rule, result.map(drop));
    true
}
