//! The tables of the M2N behaviour specification (M2N 3.2, 8.1, 8.2), a trial for each row.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test, which a harness of its own hides")]

#[path = "../common/mod.rs"]
mod common;
mod layouts;
mod pairs;
mod pieces;
mod reshard_trials;
mod transports;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let tables: [fn() -> Vec<Trial>; 5] = [
        reshard_trials::trials,
        pieces::trials,
        layouts::trials,
        pairs::trials,
        transports::trials,
    ];
    let trials = tables.iter().flat_map(|table| table()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
