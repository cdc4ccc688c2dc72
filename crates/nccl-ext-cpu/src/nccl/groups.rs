//! `ncclGroupStart` and `ncclGroupEnd`.

use nccl_ext_core::raw::ncclResult_t;

use crate::entry::entry;
use crate::refusal::{FailureClass, Refusal, require};

std::thread_local! {
    static GROUP_DEPTH: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// Groups are accepted and change nothing: every call is complete when it returns.
pub(super) unsafe extern "C" fn group_start() -> ncclResult_t {
    entry("ncclGroupStart", |_| {
        GROUP_DEPTH.set(GROUP_DEPTH.get().saturating_add(1));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn group_end() -> ncclResult_t {
    entry("ncclGroupEnd", |_| {
        let depth = GROUP_DEPTH.get();
        require(depth > 0, || {
            Refusal::usage(
                FailureClass::Return,
                "ncclGroupEnd",
                "every end has a start on the same thread",
                "an open group",
                "none",
            )
        })?;
        GROUP_DEPTH.set(depth - 1);
        Ok(())
    })
}
