//! M2N 8.2 to 8.4: calls, their codes and texts.

use libtest_mimic::Trial;
use nccl_ext_cpu::{FailureClass, last_refusal};
use nccl_ext_test::cpu::m2n::{api, finalize_handle};
use nccl_ext_test::cpu::{SUCCESS, every_rank};
use nccl_ext_test::m2n_table::{self, Decided, Row, StepResult};
use nccl_ext_test::rows::trial;

use crate::{alone, shared};

pub(crate) fn trials() -> Vec<Trial> {
    let named = |row: Row| {
        let environment = row.environment.iter().map(|(key, value)| format!(", {key}={value}"));
        let name = format!("{} {}{}", row.id, row.name, environment.collect::<String>());
        trial(name, move || check_in_its_environment(&row))
    };
    let mut trials: Vec<_> = m2n_table::rows().into_iter().map(named).collect();
    trials.push(trial("every vector has a row", every_vector_has_a_row));
    trials
}

fn check_in_its_environment(row: &Row) {
    if row.environment.is_empty() && !ends_the_epoch(row) {
        let _shared = shared();
        return check(row);
    }
    let _alone = alone();
    finalize_handle(0);
    let environment = Environment::set(row);
    check(row);
    drop(environment);
    finalize_handle(0);
}

/// Other rows may be using the default handle.
fn ends_the_epoch(row: &Row) -> bool {
    let ends = |action: &m2n_table::Action| matches!(action, m2n_table::Action::Finalize(_));
    row.steps.iter().any(|step| ends(&step.action))
}

/// A row's variables, removed when it ends, be it in a panic.
struct Environment<'a>(&'a Row);

fn variable(name: &str) -> String {
    format!("NCCL_RESHARD_{name}")
}

impl<'a> Environment<'a> {
    fn set(row: &'a Row) -> Self {
        for (name, value) in row.environment {
            // SAFETY: the row is alone, and its ranks start later.
            unsafe { std::env::set_var(variable(name), value) };
        }
        Self(row)
    }
}

impl Drop for Environment<'_> {
    fn drop(&mut self) {
        for (name, _) in self.0.environment {
            // SAFETY: the row is alone, and its ranks have ended.
            unsafe { std::env::remove_var(variable(name)) };
        }
    }
}

fn check(row: &Row) {
    let mut seen = every_rank(row.ranks, |comm| (row.run(api(), comm.as_raw()), last_refusal()));
    // No rank goes on while another fails.
    let codes = |results: &[StepResult]| results.iter().map(|r| r.code).collect::<Vec<_>>();
    for (rank, (results, _)) in seen.iter().enumerate() {
        assert_eq!(codes(&seen[row.rank].0), codes(results), "ranks {} and {rank}", row.rank);
    }
    let (results, class) = seen.swap_remove(row.rank);
    row.check(&results);
    let failed = results.iter().any(|result| result.code != SUCCESS);
    let expected = match row.decided {
        Decided::Unchecked => Some(FailureClass::UndefinedBehaviour),
        _ => failed.then_some(FailureClass::Return),
    };
    assert_eq!(class, expected);
}

/// Left out: M2N vectors E28 and E39 need a communicator or stream that this backend does not make.
/// M2N vectors L10 and G15 to G17 are more than calls of one communicator: see `m2n_epochs` and
/// `m2n/groups`.
fn every_vector_has_a_row() {
    let rows = m2n_table::rows();
    let errors = (1..=51).filter(|n| ![28, 39].contains(n)).map(|n| format!("E{n:02}"));
    let handles = (1..=14).filter(|&n| n != 10).map(|n| format!("L{n:02}"));
    let groups = (1..=25).filter(|n| !(15..=17).contains(n)).map(|n| format!("G{n:02}"));
    for id in errors.chain(handles).chain(groups) {
        assert!(rows.iter().any(|row| row.id == id), "{id}");
    }
}
