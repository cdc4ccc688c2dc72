//! Rules that are checked before native calls, as data: a table of them is what documentation
//! lists, what tests walk, and what a call runs.
//!
//! Rows are checked in order; the first that is broken becomes [`Error::Invalid`]. Checking a row
//! that holds allocates nothing.

use std::fmt::Display;

use crate::{Error, Result, Scope};

/// One rule. `C` is the check: a function of the facts of a call that says how they break it.
#[derive(Debug, Clone, Copy)]
pub struct Rule<C: 'static> {
    /// What the rule is.
    pub info: RuleInfo,
    /// The check.
    pub broken: C,
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
    /// Where it comes from: a section of the EP or M2N behaviour specification.
    pub source: &'static str,
    /// Whether every rank finds it broken at the same time.
    pub scope: Scope,
}

/// What was expected, and what was found instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What the rule allows.
    pub expected: String,
    /// What the call has.
    pub found: String,
}

/// What a check gives when its rule is broken.
pub fn violation(expected: impl Display, found: impl Display) -> Option<Violation> {
    Some(Violation { expected: expected.to_string(), found: found.to_string() })
}

impl RuleInfo {
    /// A rule of this name about this argument: its words, its source, and who finds it broken.
    #[must_use]
    pub const fn new(
        name: &'static str,
        argument: &'static str,
        rule: &'static str,
        source: &'static str,
        scope: Scope,
    ) -> Self {
        Self { name, argument, rule, source, scope }
    }

    /// The error that says that this rule is broken.
    #[must_use]
    pub fn broken(&self, violation: Violation) -> Error {
        Error::Invalid {
            argument: self.argument,
            rule: self.rule,
            expected: violation.expected,
            found: violation.found,
            scope: self.scope,
        }
    }

    /// Whether `error` says that this rule is broken.
    #[must_use]
    pub fn is_cause_of(&self, error: &Error) -> bool {
        matches!(error, Error::Invalid { argument, rule, .. }
            if *argument == self.argument && *rule == self.rule)
    }
}

/// Runs the rules in order; `run` gives a check its facts.
///
/// # Errors
/// [`Error::Invalid`] for the first broken rule.
pub fn check<C>(rules: &[Rule<C>], run: impl Fn(&C) -> Option<Violation>) -> Result<()> {
    for rule in rules {
        if let Some(violation) = run(&rule.broken) {
            return Err(rule.info.broken(violation));
        }
    }
    Ok(())
}

/// Writes a table of [`Rule`](crate::rules::Rule)s tersely: name, argument, rule, source, scope,
/// then when it is broken and what expected and found are.
#[macro_export]
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
                info: $crate::rules::RuleInfo::new(
                    $name, $argument, $rule, $source, $crate::Scope::$scope,
                ),
                broken: |$f: &$facts<'_>| {
                    if $broken { $crate::rules::violation($expected, $found) } else { None }
                },
            },
        )+];
    };
}
