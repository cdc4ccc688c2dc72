//! Settings that break each row.

use crate::rules::walk::no_call;
use crate::{Buckets, Error};

pub(in crate::rules) fn violate(row: &str) -> Error {
    match row {
        "settings.bucket-profile" => Buckets::try_from("4g".to_owned()).unwrap_err(),
        _ => no_call(row),
    }
}
