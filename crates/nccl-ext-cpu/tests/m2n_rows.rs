//! The table of M2N 8.2 to 8.4 on the CPU backend: every rank makes the calls of a row.

#![allow(clippy::unwrap_used, clippy::panic)]

mod m2n_common;

use std::sync::{Mutex, PoisonError};

use m2n_common::*;
use nccl_ext_cpu::{FailureClass, last_refusal};
use nccl_ext_test::m2n_table::{self, Decided, Row};

/// An epoch and its environment are the whole process's.
static PROCESS: Mutex<()> = Mutex::new(());

fn run(row: &Row) {
    let mut seen = ranks(row.ranks, |comm| (row.run(api(), comm.as_raw()), last_refusal()));
    // No rank goes on while another fails.
    for (rank, (other, _)) in seen.iter().enumerate() {
        let codes =
            |seen: &[m2n_table::StepResult]| seen.iter().map(|s| s.code).collect::<Vec<_>>();
        let (mine, theirs) = (codes(&seen[row.rank].0), codes(other));
        assert_eq!(mine, theirs, "{} {}: ranks {} and {rank}", row.id, row.name, row.rank);
    }
    let (seen, class) = seen.swap_remove(row.rank);
    row.check(&seen);
    let failed = seen.iter().any(|seen| seen.code != OK);
    let expected = match row.decided {
        Decided::Unchecked => Some(FailureClass::UndefinedBehaviour),
        _ => failed.then_some(FailureClass::Return),
    };
    assert_eq!(class, expected, "{} {}", row.id, row.name);
}

#[test]
fn rows() {
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let rows = m2n_table::rows();
    for row in rows.iter().filter(|row| row.environment.is_empty()) {
        run(row);
    }
    finalize(0);
}

#[test]
fn rows_of_other_environments() {
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let rows = m2n_table::rows();
    for row in rows.iter().filter(|row| !row.environment.is_empty()) {
        finalize(0);
        let name = |name: &str| format!("NCCL_RESHARD_{name}");
        // SAFETY: the tests of this binary take turns, and their ranks have ended.
        row.environment
            .iter()
            .for_each(|(key, value)| unsafe { std::env::set_var(name(key), value) });
        run(row);
        // SAFETY: as above.
        row.environment.iter().for_each(|(key, _)| unsafe { std::env::remove_var(name(key)) });
        finalize(0);
    }
}

#[test]
fn every_vector_has_a_row() {
    let rows = m2n_table::rows();
    // Left out: E28 and E39 need a communicator or stream that this backend does not make. E37, L10,
    // G15 to G17 are more than calls of one communicator: see `m2n_groups` and `m2n_handles`.
    let errors = (1..=51).filter(|n| ![28, 39].contains(n)).map(|n| format!("E{n:02}"));
    let handles = (1..=14).filter(|n| ![10, 13].contains(n)).map(|n| format!("L{n:02}"));
    let groups = (1..=25).filter(|n| !(15..=17).contains(n)).map(|n| format!("G{n:02}"));
    for id in errors.chain(handles).chain(groups) {
        assert!(rows.iter().any(|row| row.id == id), "{id}");
    }
}
