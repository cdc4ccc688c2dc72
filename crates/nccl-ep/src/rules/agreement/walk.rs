use nccl_ext_test::worlds::errors;

use crate::rules::RuleInfo;
use crate::rules::walk_support::{assert_names, ll};
use crate::{Error, Group};

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    if rule.name != "group.agreement" {
        return false;
    }
    // The stub's other ranks send what this one does, so these are ranks of the CPU backend.
    for error in errors(4, |comm| {
        let experts = if comm.rank() == 2 { 16 } else { 8 };
        Group::create(&comm, &ll().num_experts(experts)).map(drop)
    }) {
        let Error::Invalid { argument, expected, found, .. } = &error else { panic!("{error}") };
        assert_eq!(*argument, "num_experts", "the field that differs");
        assert_eq!((&**expected, &**found), ("8, as rank 0 has", "16 on rank 2"));
        assert_names(rule, Err(error));
    }
    true
}
