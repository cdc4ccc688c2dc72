//! A rule that a plan breaks, for tables and JSON.

use std::fmt;

use nccl_ext_core::Error;
use serde::Serialize;

use crate::rules;

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

/// The rule behind an error; the error itself, if no rule is.
impl TryFrom<Error> for BrokenRule {
    type Error = Error;

    fn try_from(error: Error) -> Result<Self, Error> {
        match error {
            Error::Invalid { name, argument, rule, expected, found, .. } => {
                let source = rules::named(name).map_or("", |info| info.source);
                Ok(Self { argument, rule, expected, found, name, source })
            }
            error => Err(error),
        }
    }
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { argument, rule, expected, found, source, .. } = self;
        write!(f, "`{argument}`: {rule}; expected {expected}, found {found} ({source})")
    }
}
