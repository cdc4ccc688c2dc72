//! The validation table: every rule that this crate checks before a native call, as data.
//!
//! The library checks much on one rank alone, or not at all; its peers then wait for ever or get
//! wrong bytes. Here a rule about what all ranks share is `Scope::Uniform`: each rank finds it
//! broken by itself, with the same code, before anything is sent. Rows are checked in order; the
//! first that is broken becomes `Error::Invalid`. Checking a row that holds allocates nothing.

pub(crate) mod call;
pub(crate) mod config;
pub(crate) mod group;
pub(crate) mod layout;
pub(crate) mod local;
pub(crate) mod mesh;
#[cfg(test)]
mod walk;

pub use nccl_ext_core::rules::RuleInfo;
pub(crate) use nccl_ext_core::rules::{Violation, check};

/// Every rule of the table, in the order in which calls check them.
pub fn all() -> impl Iterator<Item = RuleInfo> {
    let config = config::RULES.iter().map(|rule| rule.info);
    let ranks = mesh::FROM_RANKS.iter().map(|rule| rule.info);
    let mesh = ranks.chain(mesh::RULES.iter().map(|rule| rule.info));
    let layout = layout::RULES.iter().map(|rule| rule.info);
    let call = call::PAIR.iter().chain(call::LIMITS).map(|rule| rule.info);
    let group = group::RULES.iter().map(|rule| rule.info);
    let local = local::RULES.iter().map(|rule| rule.info);
    let local_group = [group::ALIAS, local::CAPTURE];
    config.chain(mesh).chain(layout).chain(call).chain(group).chain(local).chain(local_group)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_rule_cites_its_source() {
        let mut names = HashSet::new();
        let mut words = HashSet::new();
        for rule in super::all() {
            assert!(names.insert(rule.name), "{} twice", rule.name);
            // Peers are told which rule a rank broke by argument and rule alone.
            assert!(words.insert((rule.argument, rule.rule)), "{}", rule.name);
            assert!(rule.source.starts_with("M2N "), "{}", rule.name);
            assert!(!rule.rule.ends_with('.'), "{}", rule.name);
        }
        assert!(names.len() > 35, "{}", names.len());
    }
}
