//! Importing in the expert-major mode that only the environment chooses. It is read at group
//! creation, so this binary has one test, which sets it before any rank runs.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::import::imported_does_as_original;
use common::*;

#[test]
fn expert_major_nvlink_dup_goes_on_as_the_original() {
    // SAFETY: no other thread runs: this is the only test, and its ranks start below.
    unsafe { std::env::set_var("NCCL_EP_HT_EM_NVLINK_DUP", "1") };
    for alignment in [0, 4] {
        ranks(2, |comm| imported_does_as_original(comm, G2, EM, alignment, |_| ()));
    }
}
