//! The table's rows.

use nccl_ext_core::Backend;
use nccl_ext_test::m2n_table::{self, Action, Decided, Row, StepResult};
use nccl_ext_test::vendor::{Lab, case};
use nccl_m2n_sys::M2nApi;

use crate::cases::expect;

const AGREES: &str = "as the table says";
const STOPS: &str = "as the table says up to the first CUDA call, which failed";

/// What no other row is called.
pub(crate) fn name(row: &Row) -> String {
    let who = match row.decided {
        Decided::Host => "host",
        Decided::Device => "device",
        Decided::Unchecked => "unchecked",
    };
    let environment = row.environment.iter().map(|(key, value)| format!(", {key}={value}"));
    format!("{who}::{} {}{}", row.id, row.name, environment.collect::<String>())
}

/// Runs the row of this number in a child.
pub(crate) fn check(lab: &Lab, number: usize, row: &Row, major: u32) -> Result<(), String> {
    // A real NCCL makes no communicator without a GPU. Handles and empty groups need none.
    let of_comm = |action: &Action| matches!(action, Action::Reshard(_) | Action::WithWindow(_));
    let nccl = match row.steps.iter().any(|step| of_comm(&step.action)) {
        true => lab.nccl_stub(),
        false => lab.nccl(),
    };
    let expected = if row.decided == Decided::Host { AGREES } else { STOPS };
    let libraries = (lab.m2n(major), nccl);
    expect(lab, &format!("row {number}"), libraries, row.environment, &[expected.to_owned()])
}

/// The child's half.
pub(crate) fn run_in_child(number: usize, backend: Backend) {
    let row = m2n_table::rows().swap_remove(number);
    // What the stand-in reads: the number of ranks, and the rank.
    let mut comm = [row.ranks, row.rank].map(|number| i32::try_from(number).unwrap());
    let api = backend.extension::<M2nApi>().unwrap();
    let seen = row.run(api, comm.as_mut_ptr().cast());
    case::report(match stops_at_cuda(&row, &seen) {
        true => STOPS,
        false => {
            row.check(&seen);
            AGREES
        }
    });
}

/// Whether a CUDA call failed, and everything before went by the table.
fn stops_at_cuda(row: &Row, seen: &[StepResult]) -> bool {
    let failed = |seen: &StepResult| seen.text.contains("CUDA operation cuda");
    let first = seen.iter().position(failed);
    first.is_some_and(|first| {
        let codes = seen.iter().map(|seen| seen.code).zip(row.steps.iter().map(|step| step.code));
        codes.take(first).all(|(found, expected)| found == expected)
    })
}
