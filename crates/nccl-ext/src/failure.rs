//! Why the tool ends without a result, and with which exit code.

use std::fmt;

use nccl_ext_core::Error;

/// An input that breaks a rule: one line that names it, the rule, what was expected and found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// The file, as the user named it, or the command.
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

impl InputError {
    /// A broken rule. Without a file, `file` is the command whose argument is at fault.
    pub(crate) fn new(
        file: impl Into<String>,
        item: &'static str,
        rule: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        let (expected, found) = (expected.to_string(), found.to_string());
        Self { file: file.into(), item, rule, expected, found }
    }
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
        /// What ran: a mode, a case.
        what: String,
        /// The error, of the rank where it began.
        error: Box<Error>,
    },
    /// A rank panicked: a bug.
    Panic {
        /// What ran: a mode, a case.
        what: String,
        /// What the panic said.
        message: String,
    },
    /// The native libraries or GPUs are not there.
    Load(Box<Error>),
    /// A rank that is a process failed, or time was up.
    Ranks {
        /// Which one and how, in one line.
        message: String,
        /// The last lines of ranks that could not say it themselves.
        output: Vec<String>,
        /// As the rank's.
        exit_code: u8,
    },
    /// The folder where ranks meet cannot be used.
    Folder {
        /// What for.
        what: &'static str,
        /// Why not.
        error: String,
    },
    /// The result could not be written.
    Output(std::io::Error),
}

impl Failure {
    pub(crate) fn call(file: &str, what: &str, error: Error) -> Self {
        Self::Call { file: file.into(), what: what.into(), error: Box::new(error) }
    }

    pub(crate) fn folder(what: &'static str, error: &dyn fmt::Display) -> Self {
        Self::Folder { what, error: error.to_string() }
    }

    /// Lines that go with the message.
    #[must_use]
    pub fn output(&self) -> &[String] {
        match self {
            Self::Ranks { output, .. } => output,
            _ => &[],
        }
    }

    /// 2 when the input or an argument is to blame, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Call { error, .. } if matches!(**error, Error::Invalid { .. }) => 2,
            Self::Ranks { exit_code, .. } => *exit_code,
            Self::Call { .. }
            | Self::Panic { .. }
            | Self::Load(_)
            | Self::Folder { .. }
            | Self::Output(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => error.fmt(f),
            Self::Call { file, what, error } => write!(f, "{file}: {what}: {error}"),
            Self::Panic { what, message } => write!(f, "{what}: a rank panicked: {message}"),
            Self::Load(error) => write!(f, "backend native: {error}"),
            Self::Ranks { message, .. } => f.write_str(message),
            Self::Folder { what, error } => {
                write!(f, "the folder where ranks meet could not be {what}: {error}")
            }
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
    use nccl_ext_core::rules::{RuleInfo, Violation};

    use super::*;

    #[test]
    fn rules_broken_by_the_user_are_2_and_everything_else_1() {
        let call = |error| Failure::call("f", "HT flat", error);
        let rule = "a row is a multiple of 16 bytes";
        let info = RuleInfo::new("dispatch.rows", "inputs.tokens", rule, "EP 4.2", Scope::Uniform);
        let invalid = info.broken(Violation::new("a multiple of 8", 100));
        assert_eq!(call(invalid.clone()).exit_code(), 2);
        assert_eq!(
            call(invalid).to_string(),
            "f: HT flat: `inputs.tokens`: a row is a multiple of 16 bytes; expected a multiple of \
             8, found 100"
        );
        assert_eq!(call(Error::RankGone { reason: "gone".into() }).exit_code(), 1);
    }
}
