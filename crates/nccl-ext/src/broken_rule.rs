//! A rule that a plan breaks, for tables and JSON.

use std::fmt;

use nccl_ext_core::rules::RuleInfo;
use serde::Serialize;

/// A rule that an asked-for configuration or call breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokenRule {
    /// What is at fault.
    pub argument: &'static str,
    /// The rule.
    pub rule: &'static str,
    /// What would do.
    pub expected: String,
    /// What there is.
    pub found: String,
    /// The rule's name in the table of rules.
    pub name: &'static str,
    /// The section of the specification behind it.
    pub source: &'static str,
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { argument, rule, expected, found, source, .. } = self;
        write!(f, "`{argument}`: {rule}; expected {expected}, found {found} ({source})")
    }
}

/// Where the rule of this name comes from; nothing when `rules` has none of that name.
pub(crate) fn source(mut rules: impl Iterator<Item = RuleInfo>, name: &str) -> &'static str {
    rules.find(|info| info.name == name).map_or("", |info| info.source)
}
