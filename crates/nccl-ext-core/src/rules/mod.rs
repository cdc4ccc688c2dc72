//! Rules that are checked before native calls, as data: a table of them is what documentation
//! lists, what tests walk, and what a call runs.
//!
//! Rows are checked in order; the first that is broken becomes [`Error::Invalid`]. Checking a row
//! that holds allocates nothing.
//!
//! [`all`] lists the rows of this crate. The crates above have tables of their own, written with
//! [`rules!`](crate::rules!).

pub(crate) mod buffer;
pub(crate) mod comm;
pub(crate) mod event;
pub(crate) mod loader;
pub(crate) mod memory;
pub(crate) mod stream;
#[cfg(test)]
mod walk;

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
    /// The argument or field that it is about; for a rule about one of several, what they have in
    /// common.
    pub argument: &'static str,
    /// The rule in words, as the error says it.
    pub rule: &'static str,
    /// Where it comes from: a section of the EP or M2N specification in this workspace's book
    /// (`EP 3.2 #4`, see `docs/src/spec/index.md`), the NCCL or CUDA function whose rule it is
    /// (`NCCL ncclBroadcast`), or another page of the book (`book native.md`).
    pub source: &'static str,
    /// Whether every rank finds it broken at the same time.
    pub scope: Scope,
}

/// What was expected, and what was found instead.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// What the rule allows.
    pub expected: String,
    /// What the call has.
    pub found: String,
    /// Which argument it is, where the rule is about one of several; else the rule's own.
    pub argument: Option<&'static str>,
}

impl Violation {
    /// What the rule allows, and what the call has.
    pub fn new(expected: impl Display, found: impl Display) -> Self {
        Self { expected: expected.to_string(), found: found.to_string(), argument: None }
    }

    /// Names the argument, for a rule about one of several.
    #[must_use]
    pub fn of(mut self, argument: &'static str) -> Self {
        self.argument = Some(argument);
        self
    }
}

/// What a check gives when its rule is broken.
pub fn violation(expected: impl Display, found: impl Display) -> Option<Violation> {
    Some(Violation::new(expected, found))
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

    /// The error that says that this rule is broken. Nothing else makes an [`Error::Invalid`].
    #[must_use]
    pub fn broken(&self, violation: Violation) -> Error {
        Error::Invalid {
            name: self.name,
            argument: violation.argument.unwrap_or(self.argument),
            rule: self.rule,
            expected: violation.expected,
            found: violation.found,
            scope: self.scope,
        }
    }

    /// Whether `error` says that this rule is broken.
    #[must_use]
    pub fn is_cause_of(&self, error: &Error) -> bool {
        matches!(error, Error::Invalid { name, .. } if *name == self.name)
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

/// The rows of a table, for people and for documentation.
pub fn infos<C>(rules: &'static [Rule<C>]) -> impl Iterator<Item = RuleInfo> {
    rules.iter().map(|rule| rule.info)
}

/// Every rule of this crate.
pub fn all() -> impl Iterator<Item = RuleInfo> {
    let comm = infos(comm::JOIN).chain(infos(comm::ROOT)).chain(infos(comm::RECEIVE));
    let memory = infos(memory::PLACE).chain(infos(memory::DEVICE));
    let buffer = infos(buffer::SIZE).chain(infos(buffer::COPY)).chain(infos(buffer::PINNED));
    let events = infos(stream::PLACE).chain(infos(event::PLACE)).chain(infos(event::ELAPSED));
    comm.chain(memory).chain(buffer).chain(events).chain(infos(loader::CUDA_MAJOR))
}

/// Writes a table of [`Rule`](crate::rules::Rule)s tersely: name, argument, rule, source, scope,
/// then when it is broken and what expected and found are.
///
/// The facts have a lifetime, `over Facts`, or none, `over plain Facts`. A row says when it is
/// broken in one of two ways, and may end with the argument that it found broken:
///
/// ```ignore
/// "group.topk" on "num_topk": "a token goes to at least one expert" ("EP 3.2", Uniform)
///     |f| f.topk == 0 => ("1 or more", f.topk);
/// "group.extents" on "shape": "no extent is zero" ("EP 3.2", Uniform)
///     |f| f.extents.iter().position(|extent| *extent == 0) => |at| ("1 or more", at) on f.name;
/// ```
///
/// The first gives a `bool`; the second an `Option`, whose value the texts may use.
#[macro_export]
macro_rules! rules {
    ($(#[$meta:meta])* $table:ident over $facts:ident {$(
        $name:literal on $argument:literal: $rule:literal ($source:literal, $scope:ident)
            |$f:ident| $broken:expr
                => $(|$value:pat_param|)? ($expected:expr, $found:expr) $(on $which:expr)?;
    )+}) => {
        $(#[$meta])*
        pub(crate) static $table: &[
            $crate::rules::Rule<for<'f> fn(&$facts<'f>) -> Option<$crate::rules::Violation>>
        ] = &[$(
            $crate::rules::Rule {
                info: $crate::rules::RuleInfo::new(
                    $name, $argument, $rule, $source, $crate::Scope::$scope,
                ),
                broken: |$f: &$facts<'_>| $crate::rule_violation!(
                    $broken, [$($value)?], $expected, $found, [$($which)?]
                ),
            },
        )+];
    };
    ($(#[$meta:meta])* $table:ident over plain $facts:ident {$(
        $name:literal on $argument:literal: $rule:literal ($source:literal, $scope:ident)
            |$f:ident| $broken:expr
                => $(|$value:pat_param|)? ($expected:expr, $found:expr) $(on $which:expr)?;
    )+}) => {
        $(#[$meta])*
        pub(crate) static $table: &[
            $crate::rules::Rule<fn(&$facts) -> Option<$crate::rules::Violation>>
        ] = &[$(
            $crate::rules::Rule {
                info: $crate::rules::RuleInfo::new(
                    $name, $argument, $rule, $source, $crate::Scope::$scope,
                ),
                broken: |$f: &$facts| $crate::rule_violation!(
                    $broken, [$($value)?], $expected, $found, [$($which)?]
                ),
            },
        )+];
    };
}

/// The check of one row of [`rules!`](crate::rules!).
#[doc(hidden)]
#[macro_export]
macro_rules! rule_violation {
    ($broken:expr, [], $expected:expr, $found:expr, [$($which:expr)?]) => {
        if $broken {
            Some($crate::rules::Violation::new($expected, $found)$(.of($which))?)
        } else {
            None
        }
    };
    ($broken:expr, [$value:pat_param], $expected:expr, $found:expr, [$($which:expr)?]) => {
        match $broken {
            Some($value) => Some($crate::rules::Violation::new($expected, $found)$(.of($which))?),
            None => None,
        }
    };
}
