//! The process's environment, which this crate reads and does not write.

use std::ffi::OsString;

/// Where variables come from: the process's environment, or a test's.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A variable of this process; empty counts as unset, as it does to the vendor's libraries.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
