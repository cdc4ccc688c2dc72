use nccl_ext_test::stub::{ep as stub, set_capturing};

use crate::rules::RuleInfo;
use crate::rules::walk_support::{
    HIDDEN, STREAM, StubGroup, assert_names, assert_no_step_calls, ht, ll,
};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let (config, layout) = match rule.name {
        "handle.capture" => (ht(), Layout::Flat),
        "dispatch.eager-capture" => (ht().max_recv_tokens_per_rank(0), Layout::Flat),
        "mask.update-capture" => (ll().enable_mask(true), Layout::ExpertMajor),
        _ => return false,
    };
    // A backend of device memory: nothing is captured on the host.
    let comm = stub::comm_on(stub::backend(MemorySpace::Device), 4);
    let calls = StubGroup::on(&comm, &config, layout);
    let mut handle = calls.handle();
    let mut step = handle.update(calls.ids(), None, STREAM).unwrap();
    stub::take_calls();
    set_capturing(true);
    let result = match rule.name {
        "handle.capture" => {
            let made =
                calls.group.create_handle(layout, &HandleConfig::new(), calls.ids(), None, STREAM);
            made.map(drop)
        }
        "mask.update-capture" => calls.group.mask_update(&[true; 4], STREAM),
        _ => calls.dispatch_in(&mut step, HIDDEN, PassDir::Fwd, calls.outputs(HIDDEN, 0)),
    };
    set_capturing(false);
    assert_no_step_calls(rule);
    assert_names(rule, result);
    true
}
