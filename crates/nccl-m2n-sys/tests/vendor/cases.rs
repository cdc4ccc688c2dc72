//! All cases, as the parent lists them and as a child runs one.

use std::path::PathBuf;
use std::sync::Arc;

use libtest_mimic::{Completion, Trial};
use nccl_ext_core::Backend;
use nccl_ext_core::loader::LoadOptions;
use nccl_ext_test::m2n_table;
use nccl_m2n_sys::SPEC;

use crate::lab::{Lab, MAJORS};
use crate::{child, loading, rows};

const M2N: &str = "VENDOR_M2N";
const NCCL: &str = "VENDOR_NCCL";

/// The trials of the whole binary.
pub(crate) fn all(lab: &Arc<Lab>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for major in MAJORS {
        for (name, case) in loading::CASES {
            let name = format!("cu{major}::load::{name}");
            trials.push(trial(name, lab, major, move |lab| case(lab, major)));
        }
        for (number, row) in m2n_table::rows().into_iter().enumerate() {
            let name = format!("cu{major}::{}", rows::name(&row));
            trials.push(trial(name, lab, major, move |lab| rows::check(lab, number, &row, major)));
        }
    }
    trials
}

fn trial(
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
    let ended = child::run(lab, case, &variables)?;
    match ended.reports()? == expected {
        true => Ok(()),
        false => Err(ended.fail(&format!("it should have reported {expected:?}"))),
    }
}

/// Runs the case that this process was started for.
pub(crate) fn run_in_child() {
    let (m2n, nccl) = (child::file(M2N), child::file(NCCL));
    let options = LoadOptions::new().nccl(nccl).extension(&SPEC, &m2n);
    let backend = Backend::load(&options, &[&SPEC]).unwrap();
    match child::case().split_once(' ').unwrap() {
        ("load", name) => loading::run_in_child(name, backend, &m2n),
        ("row", number) => rows::run_in_child(number.parse().unwrap(), backend),
        other => panic!("no case {other:?}"),
    }
}
