//! The validation table: every rule that this crate checks before a native call, as data.
//!
//! The library checks much on one rank alone, or not at all; its peers then wait for ever or get
//! wrong bytes. Here a rule about what all ranks share is `Scope::Uniform`: each rank finds it
//! broken by itself, with the same code, before anything is sent. Rows are checked in order; the
//! first that is broken becomes `Error::Invalid`. Checking a row that holds allocates nothing.
//!
//! One module for each subject, named as its rows begin, with the walk beside it that breaks each
//! of its rows by a real call. Rules look at facts, which are plain data, and know nothing of
//! groups and runtimes. Refusals whose errors have a variant of their own are no rows: a
//! dimension that does not divide, ranks that mean different things, calls inside a group.

pub(crate) mod agreement;
pub(crate) mod call;
pub(crate) mod config;
pub(crate) mod group;
pub(crate) mod layout;
pub(crate) mod local;
pub(crate) mod mesh;
pub(crate) mod runtime;
pub(crate) mod settings;
pub(crate) mod transfer;
#[cfg(test)]
mod walk;

use nccl_ext_core::rules::Rule;
pub use nccl_ext_core::rules::RuleInfo;

/// The rows of a table, without their checks.
fn rows<C>(table: &'static [Rule<C>]) -> impl Iterator<Item = RuleInfo> {
    table.iter().map(|rule| rule.info)
}

/// Every rule of the table, in the order in which calls check them.
pub fn all() -> impl Iterator<Item = RuleInfo> {
    rows(config::RULES)
        .chain(rows(settings::BUCKET_PROFILE))
        .chain(rows(mesh::FROM_RANKS))
        .chain(rows(mesh::RULES))
        .chain(rows(layout::RULES))
        .chain(rows(runtime::COMMUNICATOR))
        .chain(rows(call::pair::RULES))
        .chain(rows(call::limits::RULES))
        .chain(rows(group::ENTRY))
        .chain(rows(group::ENTRY_RUNTIME))
        .chain(rows(group::FUSED))
        .chain(rows(local::TILE))
        .chain(rows(local::STREAM))
        .chain(rows(group::MEMORY))
        .chain([agreement::PEER_ERROR])
        .chain(rows(transfer::RUN))
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
            assert!(words.insert((rule.argument, rule.rule)), "{}", rule.name);
            assert!(rule.source.starts_with("M2N "), "{}", rule.name);
            assert!(!rule.rule.ends_with('.'), "{}", rule.name);
        }
        assert!(names.len() > 35, "{}", names.len());
    }
}
