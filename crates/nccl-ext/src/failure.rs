//! Why the tool ends without a result, and with which exit code.

use std::fmt;

use nccl_ext_core::Error;

/// An input that breaks a rule: one line that names it, the rule, what was expected and found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// The file, as the user named it.
    pub file: String,
    /// What of it: an argument, a tensor, a metadata key.
    pub item: &'static str,
    /// The rule, in words.
    pub rule: &'static str,
    /// What would have been accepted.
    pub expected: String,
    /// What was there.
    pub found: String,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, item, rule, expected, found } = self;
        write!(f, "{file}: `{item}`: {rule}; expected {expected}, found {found}")
    }
}

impl std::error::Error for InputError {}

/// Everything that ends the tool early.
#[derive(Debug)]
pub enum Failure {
    /// The input breaks a rule of the file or of the demo.
    Input(InputError),
    /// A call of the API failed.
    Call {
        /// The input it ran on.
        file: String,
        /// The pair of algorithm and layout that ran.
        pair: &'static str,
        /// The error, of the rank where it began.
        error: Box<Error>,
    },
    /// A rank panicked: a bug.
    Panic {
        /// The pair that ran.
        pair: &'static str,
        /// What the panic said.
        message: String,
    },
    /// The result could not be written.
    Output(std::io::Error),
}

impl Failure {
    /// 2 when the input or an argument is to blame, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Call { error, .. } if matches!(**error, Error::Invalid { .. }) => 2,
            Self::Call { .. } | Self::Panic { .. } | Self::Output(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => error.fmt(f),
            Self::Call { file, pair, error } => write!(f, "{file}: {pair}: {error}"),
            Self::Panic { pair, message } => write!(f, "{pair}: a rank panicked: {message}"),
            Self::Output(error) => write!(f, "stdout: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

#[cfg(test)]
mod tests {
    use nccl_ext_core::Scope;

    use super::*;

    #[test]
    fn rules_broken_by_the_user_are_2_and_everything_else_1() {
        let call =
            |error| Failure::Call { file: "f".into(), pair: "HT flat", error: Box::new(error) };
        let invalid = Error::Invalid {
            argument: "inputs.tokens",
            rule: "a row is a multiple of 16 bytes",
            expected: "a multiple of 8".into(),
            found: "100".into(),
            scope: Scope::Uniform,
        };
        assert_eq!(call(invalid.clone()).exit_code(), 2);
        assert_eq!(
            call(invalid).to_string(),
            "f: HT flat: `inputs.tokens`: a row is a multiple of 16 bytes; expected a multiple of \
             8, found 100"
        );
        assert_eq!(call(Error::RankGone { reason: "gone".into() }).exit_code(), 1);
    }
}
