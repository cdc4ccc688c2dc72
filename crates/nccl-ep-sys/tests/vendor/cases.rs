//! All cases, as the parent lists them and as a child runs one.

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::{Completion, Trial};
use nccl_ep_sys::{EpApi, SPEC};
use nccl_ext_core::Backend;
use nccl_ext_core::loader::LoadOptions;

use nccl_ext_test::vendor::{Lab, MAJORS, Needs, case, trial};

use crate::fixture::{Fixture, maze, zeros};
use crate::table::{self, Asked, Row};
use crate::{cpu, loading, rows, thread};

pub(crate) const NEEDS: Needs = Needs {
    scratch: env!("CARGO_TARGET_TMPDIR"),
    subject: Lab::ep,
    others: &[Lab::m2n],
    nccl_stub: NCCL_STUB,
};

/// An NCCL whose communicators point to their number of ranks and can do nothing else.
const NCCL_STUB: &str = r#"
int ncclGetVersion(int *version) { *version = 23007; return 0; }
int ncclCommCount(const int *comm, int *count) { *count = *comm; return *comm < 0 ? 2 : 0; }
const char *ncclGetErrorString(int code) { return "stub"; }
const char *ncclGetLastError(void *comm) { return "stub"; }
"#;

pub(crate) const EP: &str = "VENDOR_EP";
pub(crate) const NCCL: &str = "VENDOR_NCCL";

/// The trials of the whole binary.
pub(crate) fn all(lab: &Arc<Lab>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for major in MAJORS {
        for (name, check) in loading::CASES {
            let name = format!("cu{major}::{name}");
            trials.push(trial(name, lab, major, move |lab| check(lab, major)));
        }
        for row in rows::all() {
            let name = format!("cu{major}::{}", row.name);
            let check = move |lab: &Lab| row.check_vendor(&run_row(lab, &row, major)?);
            trials.push(trial(name, lab, major, check));
        }
    }
    for row in rows::all() {
        if row.asked != Asked::Vendor {
            let lab = Arc::clone(lab);
            trials.push(Trial::ignorable_test(format!("cpu::{}", row.name), move || {
                let ended = case::run(&lab, &format!("cpu {}", row.name), &[])?;
                row.check_cpu(&ended)?;
                Ok(Completion::Completed)
            }));
        }
    }
    trials
}

fn run_row(lab: &Lab, row: &Row, major: u32) -> Result<case::Ended, String> {
    // A real NCCL makes no communicator without a GPU, and looks at the objects of rows.
    let nccl = if row.needs == table::Needs::Nothing { lab.nccl() } else { lab.nccl_stub() };
    case::run(lab, &format!("cu{major} {}", row.name), &[(EP, lab.ep(major)), (NCCL, nccl)])
}

/// Runs the case that this process was started for.
pub(crate) fn run_in_child(case: &str) {
    let (subject, name) = case.split_once(' ').unwrap();
    if subject == "load" {
        return loading::run_in_child(name);
    }
    let rows = rows::all();
    let row = rows.iter().find(|row| row.name == name).unwrap();
    if subject == "cpu" {
        return cpu::run_in_child(row);
    }
    let backend = load(&case::file(NCCL), Some(&case::file(EP))).unwrap();
    let ranks = 2;
    let comm = (&raw const ranks).cast_mut().cast();
    let (group, handle, low_latency) = (maze().cast(), maze().cast(), zeros().cast());
    let api = backend.extension::<EpApi>().unwrap();
    thread::run(|| case::report(&(row.call)(&Fixture { api, comm, group, handle, low_latency })));
}

/// Loads NCCL, and the EP library unless only NCCL is wanted.
pub(crate) fn load(nccl: &Path, ep: Option<&Path>) -> nccl_ext_core::Result<Backend> {
    let options = LoadOptions::new().nccl(nccl);
    match ep {
        Some(ep) => Backend::load(&options.extension(&SPEC, ep), &[&SPEC]),
        None => Backend::load(&options, &[]),
    }
}
