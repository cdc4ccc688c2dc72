//! Whether this thread records a group: the library's group is the thread's.

use std::cell::Cell;

use nccl_ext_core::{Error, Result};

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// Says that this thread begins to record a group, or ends.
pub(crate) fn set_recording(recording: bool) {
    RECORDING.set(recording);
}

/// Refuses a call while this thread records a group: the library would record it without anybody
/// keeping its memory, abort all groups at once, or refuse.
pub(crate) fn refuse_in_group(what: &'static str) -> Result<()> {
    if !RECORDING.get() {
        return Ok(());
    }
    Err(Error::Busy {
        what,
        reason: "this thread records a group; use the group's own methods, or end it first".into(),
    })
}
