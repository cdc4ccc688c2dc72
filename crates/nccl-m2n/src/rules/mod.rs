//! The validation table: every rule that this crate checks before a native call, as data.
//!
//! The library checks much on one rank alone, or not at all; its peers then wait for ever or get
//! wrong bytes. Here a rule about what all ranks share is [`Scope::Uniform`]: each rank finds it
//! broken by itself, with the same code, before anything is sent. Rows are checked in order; the
//! first that is broken becomes [`Error::Invalid`]. Checking a row that holds allocates nothing.

pub(crate) mod call;
pub(crate) mod config;
pub(crate) mod group;
pub(crate) mod layout;
pub(crate) mod local;
pub(crate) mod mesh;
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
    /// A name that stays: `call.global-shape`.
    pub name: &'static str,
    /// The argument or field that it is about.
    pub argument: &'static str,
    /// The rule in words, as the error says it.
    pub rule: &'static str,
    /// Where it comes from: a section of the M2N behaviour specification.
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

    /// Whether `error` says that this rule is broken.
    pub(crate) fn is_cause_of(&self, error: &Error) -> bool {
        matches!(error, Error::Invalid { argument, rule, .. }
            if *argument == self.argument && *rule == self.rule)
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
