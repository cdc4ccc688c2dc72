use nccl_ext_core::Buffer;
use nccl_ext_test::stub::ep as stub;

use crate::rules::RuleInfo;
use crate::rules::walk_support::{StubGroup, assert_names, ht, ll};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let high = StubGroup::new(4, &ht(), Layout::Flat);
    let low = StubGroup::new(4, &ll(), Layout::ExpertMajor);
    let state = HandleState { num_tokens: 4, num_topk: 2, topk_idx_datatype: DataType::Int32 };
    let (calls, state) = match rule.name {
        "import.high-throughput" => (low, state),
        "import.tokens" => (high, HandleState { num_tokens: 5, ..state }),
        "import.data-type" => (high, HandleState { topk_idx_datatype: DataType::Float32, ..state }),
        _ => return false,
    };
    let memory = Box::new(Buffer::<u8>::zeroed(calls.group.comm(), 8192).unwrap());
    stub::take_calls();
    let made = calls.group.import_handle(calls.layout, &HandleConfig::new(), &state, memory);
    assert_names(rule, made.map(drop));
    true
}

/// A library that cannot import says so, and what to do instead.
#[test]
fn import_is_unsupported_without_its_table() {
    let calls = StubGroup::new(4, &ht(), Layout::Flat);
    let state = HandleState { num_tokens: 4, num_topk: 2, topk_idx_datatype: DataType::Int64 };
    let memory: HandleMemory = Box::new(Buffer::<u8>::zeroed(calls.group.comm(), 8192).unwrap());
    let made = calls.group.import_handle(Layout::Flat, &HandleConfig::new(), &state, memory);
    let error = made.map(drop).unwrap_err().to_string();
    assert!(error.contains("libnccl_ep.so.0 (0.2.0)"), "{error}");
    assert!(error.contains("restore_collective"), "{error}");
}
