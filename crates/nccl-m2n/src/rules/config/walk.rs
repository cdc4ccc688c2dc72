//! Configurations that break each row.

use nccl_ext_test::stub::m2n as stub;

use crate::rules::walk::no_call;
use crate::{Config, Error, MemorySpace, Runtime};

pub(in crate::rules) fn violate(row: &str) -> Error {
    let config = match row {
        "config.max-cta" => Config::new().max_cta(Some(0)),
        _ => no_call(row),
    };
    let made = Runtime::new(stub::backend(MemorySpace::Host), &config);
    assert_eq!(stub::take_calls(), [""; 0]);
    made.unwrap_err()
}
