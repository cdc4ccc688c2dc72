//! The option that tasks share which write or list what `ci` checks.

/// The arguments of such a task.
#[derive(clap::Args)]
pub(crate) struct CheckFlag {
    /// Fail on what is wrong or out of date, instead of listing it or writing it anew.
    #[arg(long)]
    pub(crate) check: bool,
}

impl CheckFlag {
    /// `--check`.
    pub(crate) const SET: Self = Self { check: true };
}
