//! What a wait for a stream's work comes to.

use std::sync::Arc;

use nccl_ext_core::Error;
use nccl_ext_core::driver::CuResult;

use crate::refusal::{note, record_success};

/// The code of a wait. Work that failed has its error beside it, for the backend's hooks.
pub(super) fn code(result: Result<(), Arc<Error>>) -> CuResult {
    ready(result.map(|()| true))
}

/// As [`code`], for questions.
pub(super) fn ready(result: Result<bool, Arc<Error>>) -> CuResult {
    record_success();
    match result {
        Ok(true) => CuResult::SUCCESS,
        Ok(false) => CuResult::NOT_READY,
        Err(error) => {
            note(Error::clone(&error));
            CuResult::LAUNCH_FAILED
        }
    }
}
