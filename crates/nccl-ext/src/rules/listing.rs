//! The rules of all crates.

use nccl_ext_core::Scope;
use nccl_ext_core::rules::RuleInfo;

/// A crate and its rules, in the order in which calls check them.
pub(super) struct CrateRules {
    pub(super) name: &'static str,
    /// What its rules are about.
    pub(super) about: &'static str,
    pub(super) rules: Vec<RuleInfo>,
}

/// The crates that have rules, in the order in which they build on each other.
pub(super) fn all() -> [CrateRules; 3] {
    [
        CrateRules {
            name: "nccl-ext-core",
            about: "Communicators, buffers, events and the loader.",
            rules: nccl_ext_core::rules::all().collect(),
        },
        CrateRules {
            name: "nccl-ep",
            about: "Expert parallelism: groups, handles, their calls and plans.",
            rules: nccl_ep::rules().collect(),
        },
        CrateRules {
            name: "nccl-m2n",
            about: "Resharding: meshes, layouts, calls and groups of calls.",
            rules: nccl_m2n::rules().collect(),
        },
    ]
}

/// The rule of this name, whatever crate checks it.
pub(crate) fn named(name: &str) -> Option<RuleInfo> {
    all().into_iter().flat_map(|of| of.rules).find(|info| info.name == name)
}

/// Who gets the error.
pub(super) fn who(scope: Scope) -> &'static str {
    match scope {
        Scope::Uniform => "all ranks",
        Scope::Local => "this rank",
    }
}
