//! The validation table: every rule that this crate checks before a native call, as data.
//!
//! A rule that the vendor library enforces with an abort, a trap or a hang, or not at all, is a row
//! here. Rows are checked in order; the first that is broken becomes [`Error::Invalid`]. Checking a
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

use std::fmt::Display;

use nccl_ext_core::{Error, Result, Scope};

/// One rule. `C` is the check: a function of the facts of a call that says how they break it.
pub(crate) struct Rule<C: 'static> {
    pub(crate) info: RuleInfo,
    pub(crate) broken: C,
}

/// A rule, for people and for documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleInfo {
    /// A name that stays: `group.experts-divide`.
    pub name: &'static str,
    /// The argument or field that it is about.
    pub argument: &'static str,
    /// The rule in words, as the error says it.
    pub rule: &'static str,
    /// Where it comes from: a section of the EP behaviour specification.
    pub source: &'static str,
    /// Whether every rank finds it broken at the same time.
    pub scope: Scope,
}

/// What was expected, and what was found instead.
pub(crate) struct Violation {
    pub(crate) expected: String,
    pub(crate) found: String,
}

pub(crate) fn violation(expected: impl Display, found: impl Display) -> Option<Violation> {
    Some(Violation { expected: expected.to_string(), found: found.to_string() })
}

impl RuleInfo {
    pub(crate) fn broken(&self, violation: Violation) -> Error {
        Error::Invalid {
            argument: self.argument,
            rule: self.rule,
            expected: violation.expected,
            found: violation.found,
            scope: self.scope,
        }
    }
}

/// The first broken rule as an error; `run` gives a check its facts.
pub(crate) fn check<C>(rules: &[Rule<C>], run: impl Fn(&C) -> Option<Violation>) -> Result<()> {
    for rule in rules {
        if let Some(violation) = run(&rule.broken) {
            return Err(rule.info.broken(violation));
        }
    }
    Ok(())
}

/// Writes rows tersely: name, argument, rule, source, scope, then when it is broken and what
/// expected and found are.
macro_rules! rules {
    ($(#[$meta:meta])* $table:ident over $facts:ident {$(
        $name:literal on $argument:literal: $rule:literal ($source:literal, $scope:ident)
            |$f:ident| $broken:expr => ($expected:expr, $found:expr);
    )+}) => {
        $(#[$meta])*
        pub(crate) static $table: &[
            $crate::rules::Rule<for<'f> fn(&$facts<'f>) -> Option<$crate::rules::Violation>>
        ] = &[$(
            $crate::rules::Rule {
                info: $crate::rules::RuleInfo {
                    name: $name,
                    argument: $argument,
                    rule: $rule,
                    source: $source,
                    scope: nccl_ext_core::Scope::$scope,
                },
                broken: |$f: &$facts<'_>| {
                    if $broken { $crate::rules::violation($expected, $found) } else { None }
                },
            },
        )+];
    };
}
pub(crate) use rules;

/// Every rule of the table, in the order in which calls check them.
pub fn all() -> impl Iterator<Item = RuleInfo> {
    let group = group::RULES.iter().map(|rule| rule.info);
    let handle = handle::RULES.iter().map(|rule| rule.info);
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
