use nccl_ext_test::stub::ep as stub;

use crate::rules::RuleInfo;
use crate::rules::walk_support::{STREAM, StubGroup, assert_names, ht, read, write};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let (layout, tokens) = match rule.name {
        "update.tokens" => (Layout::Flat, 5),
        "update.counter-types" => (Layout::ExpertMajor, 3),
        _ => return false,
    };
    let calls = StubGroup::new(4, &ht(), layout);
    let mut handle = calls.handle();
    let mut info = LayoutInfo::new()
        .expert_counters(write(DataType::Int64, &[2]))
        .recv_total_counter(write(DataType::Int32, &[1]));
    let info = (rule.name == "update.counter-types").then_some(&mut info);
    stub::take_calls();
    let ids = read(DataType::Int64, &[tokens, 2]);
    assert_names(rule, handle.update(ids, info, STREAM).map(drop));
    true
}
