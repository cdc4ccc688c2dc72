//! The validation table: every rule that this crate checks before a native call, as data.
//!
//! A rule that the vendor library enforces with an abort, a trap or a hang, or not at all, is a row
//! here. Rows are checked in order; the first that is broken becomes `Error::Invalid`. Checking a
//! row that holds allocates nothing.

pub(crate) mod call;
pub(crate) mod data;
pub(crate) mod group;
pub(crate) mod handle;
pub(crate) mod import;
pub(crate) mod mask;
pub(crate) mod tensors;
#[cfg(test)]
mod walk;

pub use nccl_ext_core::rules::RuleInfo;
pub(crate) use nccl_ext_core::rules::{check, violation};

/// Every rule of the table, in the order in which calls check them.
pub fn all() -> impl Iterator<Item = RuleInfo> {
    let group = group::RULES.iter().map(|rule| rule.info);
    let request = handle::REQUEST.iter().map(|rule| rule.info);
    let handle = request.chain(handle::RULES.iter().map(|rule| rule.info));
    let update = call::UPDATE.iter().map(|rule| rule.info);
    let data = data::DATA.iter().map(|rule| rule.info);
    let update = update.chain(data);
    let dispatch = call::DISPATCH.iter().map(|rule| rule.info);
    let combine = call::COMBINE.iter().map(|rule| rule.info);
    let tensors = tensors::TABLE.iter().map(|rule| rule.info);
    let snapshot = import::SNAPSHOT.iter().map(|rule| rule.info);
    let import = import::IMPORT.iter().map(|rule| rule.info);
    let mask = mask::RULES.iter().map(|rule| rule.info);
    let handle = handle.chain(snapshot).chain(import).chain(mask);
    group.chain(handle).chain(update).chain(dispatch).chain(combine).chain(tensors)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_rule_cites_its_source() {
        let mut names = HashSet::new();
        for rule in super::all() {
            assert!(names.insert(rule.name), "{} twice", rule.name);
            assert!(rule.source.starts_with("EP "), "{}", rule.name);
            assert!(!rule.rule.ends_with('.'), "{}", rule.name);
        }
        assert!(names.len() > 60);
    }
}
