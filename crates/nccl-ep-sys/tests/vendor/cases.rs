//! All cases, as the parent lists them and as a child runs one.

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::{Completion, Trial};
use nccl_ep_sys::{EpApi, SPEC};
use nccl_ext_core::Backend;
use nccl_ext_core::loader::LoadOptions;

use crate::fixture::{Fixture, maze, zeros};
use crate::lab::{Lab, MAJORS};
use crate::table::{Asked, Needs, Row};
use crate::{child, cpu, loading, rows, thread};

pub(crate) const EP: &str = "VENDOR_EP";
pub(crate) const NCCL: &str = "VENDOR_NCCL";

/// The trials of the whole binary.
pub(crate) fn all(lab: &Arc<Lab>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for major in MAJORS {
        for (name, case) in loading::CASES {
            let lab = Arc::clone(lab);
            trials
                .push(trial(format!("cu{major}::{name}"), lab, major, move |lab| case(lab, major)));
        }
        for row in rows::all() {
            let lab = Arc::clone(lab);
            trials.push(trial(format!("cu{major}::{}", row.name), lab, major, move |lab| {
                row.check_vendor(&run_row(lab, &row, major)?)
            }));
        }
    }
    for row in rows::all() {
        if row.asked != Asked::Vendor {
            let lab = Arc::clone(lab);
            trials.push(Trial::ignorable_test(format!("cpu::{}", row.name), move || {
                let ended = child::run(&lab, &format!("cpu {}", row.name), &[])?;
                row.check_cpu(&ended)?;
                Ok(Completion::Completed)
            }));
        }
    }
    trials
}

fn trial(
    name: String,
    lab: Arc<Lab>,
    major: u32,
    body: impl FnOnce(&Lab) -> Result<(), String> + Send + 'static,
) -> Trial {
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

fn run_row(lab: &Lab, row: &Row, major: u32) -> Result<child::Ended, String> {
    // A real NCCL makes no communicator without a GPU, and looks at the objects of rows.
    let nccl = if row.needs == Needs::Nothing { lab.nccl() } else { lab.nccl_stub() };
    child::run(lab, &format!("cu{major} {}", row.name), &[(EP, lab.ep(major)), (NCCL, nccl)])
}

/// Runs the case that this process was started for.
pub(crate) fn run_in_child() {
    let case = child::case();
    let (subject, name) = case.split_once(' ').unwrap();
    if subject == "load" {
        return loading::run_in_child(name);
    }
    let rows = rows::all();
    let row = rows.iter().find(|row| row.name == name).unwrap();
    if subject == "cpu" {
        return cpu::run_in_child(row);
    }
    let backend = load(&child::file(NCCL), Some(&child::file(EP))).unwrap();
    let ranks = 2;
    let comm = (&raw const ranks).cast_mut().cast();
    let (group, handle, low_latency) = (maze().cast(), maze().cast(), zeros().cast());
    let api = backend.extension::<EpApi>().unwrap();
    thread::run(|| child::report(&(row.call)(&Fixture { api, comm, group, handle, low_latency })));
}

/// Loads NCCL, and the EP library unless only NCCL is wanted.
pub(crate) fn load(nccl: &Path, ep: Option<&Path>) -> nccl_ext_core::Result<Backend> {
    let options = LoadOptions::new().nccl(nccl);
    match ep {
        Some(ep) => Backend::load(&options.extension(&SPEC, ep), &[&SPEC]),
        None => Backend::load(&options, &[]),
    }
}
