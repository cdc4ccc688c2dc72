//! Tests of the vendor's libraries without a GPU: each case in a process of its own, over a
//! stand-in for the driver that fails every call.
//!
//! A process for each case, since the dynamic linker reads its search path when a process starts,
//! two NCCLs must not meet in one, the environment is the whole process's, and some calls end the
//! process. What a library prints there is shown when the case fails.

pub mod case;
mod elf;
mod lab;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Trial};

pub use elf::Elf;
pub use lab::{Lab, MAJORS, Needs};

/// The `main` of a test binary: the trials, or in a child that was started for a case `run_case`.
pub fn main(needs: Needs, trials: fn(&Arc<Lab>) -> Vec<Trial>, run_case: fn(&str)) -> ExitCode {
    if case::is_one() {
        run_case(&case::name());
        return ExitCode::SUCCESS;
    }
    let lab = Arc::new(Lab::new(needs));
    libtest_mimic::run(&Arguments::from_args(), trials(&lab)).exit_code()
}

/// A trial that needs the libraries of a CUDA major. Without them it is skipped, and fails with
/// `NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS=1`.
pub fn trial(
    name: String,
    lab: &Arc<Lab>,
    major: u32,
    body: impl FnOnce(&Lab) -> Result<(), String> + Send + 'static,
) -> Trial {
    let lab = Arc::clone(lab);
    Trial::ignorable_test(name, move || {
        let forbidden = skips_are_forbidden()?;
        if let Some(reason) = lab.lacks(major) {
            return match forbidden {
                false => Ok(Completion::ignored_with(reason)),
                true => Err(format!("{reason} ({REQUIRE}=1 forbids to skip)").into()),
            };
        }
        lab.build_stubs()?;
        body(&lab)?;
        Ok(Completion::Completed)
    })
}

const REQUIRE: &str = "NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS";

fn skips_are_forbidden() -> Result<bool, String> {
    match std::env::var(REQUIRE).as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(other) => Err(format!("{REQUIRE} is `{other}`; it is 0, 1 or not set")),
    }
}
