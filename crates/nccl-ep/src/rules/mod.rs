//! The validation table: every rule that this crate checks before a native call, as data.
//!
//! A rule that the vendor library enforces with an abort, a trap or a hang, or not at all, is a row
//! here. Rows are checked in order; the first that is broken becomes `Error::Invalid`. Checking a
//! row that holds allocates nothing.
//!
//! One folder for each call, with the walk beside its rows that breaks each of them by a real call.
//! Rows look at facts, which are plain data, and know nothing of groups, handles and steps.

pub(crate) mod agreement;
pub(crate) mod combine;
pub(crate) mod data;
pub(crate) mod dispatch;
pub(crate) mod group;
pub(crate) mod handle;
pub(crate) mod import;
pub(crate) mod mask;
pub(crate) mod plan;
pub(crate) mod received;
pub(crate) mod snapshot;
pub(crate) mod stream;
pub(crate) mod tensor;
pub(crate) mod tensor_row;
pub(crate) mod tensors;
pub(crate) mod update;
#[cfg(test)]
mod walk;
#[cfg(test)]
mod walk_support;

pub use nccl_ext_core::rules::RuleInfo;
pub(crate) use nccl_ext_core::rules::check;
use nccl_ext_core::rules::infos;

/// Every rule of the table, call after call, in the order in which each checks them.
///
/// An error of a rule carries its [`name`](RuleInfo::name). [`nccl_ext_core::rules::all`] lists
/// the rules of what this crate stands on: communicators, buffers, events.
pub fn all() -> impl Iterator<Item = RuleInfo> {
    let plan = infos(plan::MACHINE).chain(infos(plan::TOKEN_CAP)).chain(infos(plan::BYTES));
    let group = infos(agreement::RULES).chain(infos(group::RULES));
    let handle = infos(handle::REQUEST)
        .chain(infos(handle::RULES))
        .chain(infos(handle::MEMORY))
        .chain(infos(stream::CREATE_HANDLE))
        .chain(infos(snapshot::RULES))
        .chain(infos(import::RULES));
    let mask = infos(mask::QUERY).chain(infos(mask::RULES)).chain(infos(stream::MASK_UPDATE));
    let tensor = infos(tensor::SHAPE).chain(infos(tensor::DATA_TYPE));
    let update = infos(update::RULES).chain(infos(data::DATA));
    let dispatch = infos(dispatch::RULES).chain(infos(stream::EAGER_DISPATCH));
    let combine = infos(combine::ORDER).chain(infos(combine::RULES));
    let tensors = tensors::all().map(|rule| rule.info);
    let call = update.chain(dispatch).chain(combine).chain(tensors);
    let received = infos(received::RULES);
    group.chain(handle).chain(mask).chain(tensor).chain(call).chain(received).chain(plan)
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
        assert!(names.len() > 80, "{}", names.len());
    }
}
