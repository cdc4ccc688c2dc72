//! The tables of M2N 8.1 to 8.4 on the CPU backend: every rank makes the calls of a row. A trial
//! a row.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod data_vectors;
mod rows;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use libtest_mimic::Arguments;

/// An epoch of the library and its environment are the whole process's: whoever changes them does
/// so alone.
static PROCESS: RwLock<()> = RwLock::new(());

fn shared() -> RwLockReadGuard<'static, ()> {
    PROCESS.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESS.write().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> ExitCode {
    let trials = [data_vectors::trials(), rows::trials()].into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
