//! Tests that need a process of their own: this test binary again, with another environment.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

const PREFIX: &str = "child: ";

/// A child to be, which runs the test called `child`.
#[derive(Debug)]
pub struct Child(Command);

impl Child {
    /// With an empty environment.
    ///
    /// # Panics
    /// If the path of this binary cannot be had.
    pub fn new() -> Self {
        Self::of(&std::env::current_exe().unwrap())
    }

    /// As [`new`](Self::new), of a copy of this binary.
    pub fn of(program: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(["--exact", "child", "--nocapture"]).env_clear();
        // What a coverage build writes its counts by.
        command.envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)));
        Self(command)
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// What it says.
    ///
    /// # Panics
    /// If it fails, or says nothing.
    #[track_caller]
    pub fn says(mut self) -> String {
        let output = self.0.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let line = text.lines().find_map(|line| line.split_once(PREFIX));
        line.unwrap_or_else(|| panic!("{text}")).1.to_string()
    }
}

impl Default for Child {
    fn default() -> Self {
        Self::new()
    }
}

/// The child's half: tells the parent.
pub fn say(text: impl std::fmt::Display) {
    println!("{PREFIX}{text}");
}
