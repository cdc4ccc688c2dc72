//! The guard against a C++ library that throws. It is built here, and opened as the loader opens
//! the vendor's: nobody else sees its symbols. Without a C++ compiler these tests are skipped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test, which a harness of its own hides")]

mod panics;
mod stub;
mod throws;

use libtest_mimic::{Arguments, Completion, Trial};
use nccl_ext_core::{Error, guard};
use stub::Stub;

/// A test's name and what it does.
type Case = (&'static str, fn(&Stub));

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![Trial::test("the_kind_is_the_one_that_was_built", || {
        let here =
            cfg!(target_os = "linux") && cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
        let kind = if cfg!(feature = "guard-cc") { "c++" } else { "assembly" };
        assert_eq!(guard::kind(), if here { kind } else { "none" });
        Ok(())
    })];
    let both = throws::TRIALS.iter().chain(panics::TRIALS);
    trials.extend(both.map(|case| trial(case, &["assembly", "c++"])));
    trials.extend(panics::ASSEMBLY_ONLY.iter().map(|case| trial(case, &["assembly"])));
    libtest_mimic::run(&arguments, trials).exit();
}

/// A test that needs the stub and one of those kinds of guard.
fn trial((name, run): &'static Case, kinds: &'static [&'static str]) -> Trial {
    Trial::ignorable_test(*name, move || {
        if !kinds.contains(&guard::kind()) {
            return Ok(Completion::ignored_with(format!("not for kind {}", guard::kind())));
        }
        match stub::get() {
            Ok(stub) => run(stub),
            Err(reason) => return Ok(Completion::ignored_with(reason)),
        }
        Ok(Completion::Completed)
    })
}

/// The text of the exception that a call ended with.
#[track_caller]
fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Exception { call: "stub", what }) => what,
        other => panic!("no exception: {other:?}"),
    }
}
