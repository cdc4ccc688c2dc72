//! All cases, as the parent lists them and as a child runs one.

use std::path::PathBuf;
use std::sync::Arc;

use libtest_mimic::Trial;
use nccl_ext_core::Backend;
use nccl_ext_core::loader::LoadOptions;
use nccl_ext_test::m2n_table;
use nccl_ext_test::vendor::{Lab, MAJORS, Needs, case, trial};
use nccl_m2n_sys::SPEC;

use crate::{loading, rows};

pub(crate) const NEEDS: Needs = Needs {
    scratch: env!("CARGO_TARGET_TMPDIR"),
    subject: Lab::m2n,
    others: &[],
    nccl_stub: NCCL_STUB,
};

/// An NCCL whose communicators point to their number of ranks and their rank.
const NCCL_STUB: &str = r#"
int ncclGetVersion(int *version) { *version = 23007; return 0; }
int ncclCommCount(const int *comm, int *count) { *count = comm[0]; return 0; }
int ncclCommUserRank(const int *comm, int *rank) { *rank = comm[1]; return 0; }
int ncclCommGetAsyncError(const int *comm, int *error) { *error = 0; return 0; }
const char *ncclGetErrorString(int code) { return "stub"; }
const char *ncclGetLastError(void *comm) { return "stub"; }
"#;

const M2N: &str = "VENDOR_M2N";
const NCCL: &str = "VENDOR_NCCL";

/// The trials of the whole binary.
pub(crate) fn all(lab: &Arc<Lab>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for major in MAJORS {
        for (name, check) in loading::CASES {
            let name = format!("cu{major}::load::{name}");
            trials.push(trial(name, lab, major, move |lab| check(lab, major)));
        }
        for (number, row) in m2n_table::rows().into_iter().enumerate() {
            let name = format!("cu{major}::{}", rows::name(&row));
            trials.push(trial(name, lab, major, move |lab| rows::check(lab, number, &row, major)));
        }
    }
    trials
}

/// Runs a case in a child with these libraries and variables, and compares what it reports.
pub(crate) fn expect(
    lab: &Lab,
    case: &str,
    (m2n, nccl): (PathBuf, PathBuf),
    environment: &[(&str, &str)],
    expected: &[String],
) -> Result<(), String> {
    // It logs on the standard output, where reports go too.
    let quiet = ("NCCL_RESHARD_LOG_LEVEL".to_owned(), PathBuf::from("NONE"));
    let of_row = |(key, value): &(&str, &str)| (format!("NCCL_RESHARD_{key}"), value.into());
    let named: Vec<_> = environment.iter().map(of_row).chain([quiet]).collect();
    let mut variables = vec![(M2N, m2n), (NCCL, nccl)];
    variables.extend(named.iter().map(|(name, value)| (name.as_str(), value.clone())));
    case::run(lab, case, &variables)?.expect(expected)
}

/// Runs the case that this process was started for.
pub(crate) fn run_in_child(case: &str) {
    let (m2n, nccl) = (case::file(M2N), case::file(NCCL));
    let options = LoadOptions::new().nccl(nccl).extension(&SPEC, &m2n);
    let backend = Backend::load(&options, &[&SPEC]).unwrap();
    match case.split_once(' ').unwrap() {
        ("load", name) => loading::run_in_child(name, backend, &m2n),
        ("row", number) => rows::run_in_child(number.parse().unwrap(), backend),
        other => panic!("no case {other:?}"),
    }
}
