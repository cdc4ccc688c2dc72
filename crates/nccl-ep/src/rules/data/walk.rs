use nccl_ext_test::stub::ep as stub;

use crate::geometry::EmMode;
use crate::rules::RuleInfo;
use crate::rules::walk_support::{STREAM, StubGroup, assert_names, ht, ll};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let (config, layout, ids) = match rule.name {
        "data.expert-exists" => (ht(), Layout::Flat, [0_i64, 1, 2, 8]),
        "data.ll-em-twice" => (ll(), Layout::ExpertMajor, [0, 1, 5, 5]),
        "data.ht-twice" => (ht(), Layout::Flat, [5, 5, 1, 2]),
        "data.em-crowded" => {
            walk_crowded(rule);
            return true;
        }
        _ => return false,
    };
    let calls = StubGroup::new(4, &config.validation(Validation::Data), layout);
    let mut handle = calls.handle();
    stub::take_calls();
    let ids = Tensor::new(&ids, &[2, 2]).unwrap();
    assert_names(rule, handle.update(ids, None, STREAM).map(drop));
    true
}

fn walk_crowded(rule: &RuleInfo) {
    let config = ht().num_experts(64).max_recv_tokens_per_rank(1024).validation(Validation::Data);
    let calls = StubGroup::in_em_mode(4, &config, Layout::ExpertMajor, EmMode::LocalDup);
    let (layout, options) = (Layout::ExpertMajor, HandleConfig::new());
    let mut handle = calls.group.init_handle(layout, &options, TopK::N(9), None).unwrap();
    // Eight of one rank are fine, with others and repeats beside them.
    let ids = Tensor::new(&[0_i64, 1, 2, 3, 4, 5, 6, 7, 16], &[1, 9]).unwrap();
    handle.update(ids, None, STREAM).map(drop).unwrap();
    stub::take_calls();
    let ids = Tensor::new(&[0_i64, 1, 2, 3, 4, 5, 6, 7, 8], &[1, 9]).unwrap();
    assert_names(rule, handle.update(ids, None, STREAM).map(drop));
}

/// Without data validation the call is made, and the step says so afterwards.
#[test]
fn data_is_refused_only_when_asked() {
    let calls = StubGroup::new(4, &ll(), Layout::ExpertMajor);
    let wrong = Tensor::new(&[99_i64, 99], &[1, 2]).unwrap();
    let mut handle = calls.handle();
    let told = handle.update(wrong, None, STREAM).unwrap().check(STREAM);
    assert!(matches!(told, Err(Error::Ids { count: 2, token: 0, choice: 0 })), "{told:?}");
    let calls = StubGroup::new(4, &ll().validation(Validation::Data), Layout::ExpertMajor);
    let mut handle = calls.handle();
    let right = Tensor::new(&[7_i32, 0, -2, -2, -65529, i32::MIN], &[3, 2]).unwrap();
    handle.update(right, None, STREAM).map(drop).unwrap();
    let error = handle.update(wrong, None, STREAM).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("expected ids below 8, found 99 as choice 0 of token 0"), "{error}");
}
