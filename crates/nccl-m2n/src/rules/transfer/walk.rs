//! Copies that break each row.

use crate::Error;
use crate::plan::{Conditions, Plan};
use crate::rules::walk::{Attempt, no_call};

pub(in crate::rules) fn violate(row: &str) -> Error {
    let Attempt { source, destination, .. } = Attempt::good();
    let plan = Plan::new(&source, &destination, &Conditions::one_host(4)).unwrap();
    let transfer = plan.transfers().next().unwrap();
    match row {
        "transfer.inside-tiles" => transfer.copy(&[0; 2], &mut [0; 1]).unwrap_err(),
        _ => no_call(row),
    }
}
