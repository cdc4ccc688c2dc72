//! What was called, and what the next call returns.

use std::cell::{Cell, RefCell};

use nccl_ext_core::raw::ncclResult_t;

thread_local! {
    static CALLS: RefCell<Vec<&'static str>> = RefCell::new(Vec::with_capacity(1024));
    static FAILING: Cell<Option<(&'static str, ncclResult_t)>> = const { Cell::new(None) };
}

/// Records a call, and gives what it returns.
pub(super) fn called(name: &'static str) -> ncclResult_t {
    CALLS.with_borrow_mut(|calls| calls.push(name));
    match FAILING.take() {
        Some((failing, code)) if failing == name => code,
        other => {
            FAILING.set(other);
            ncclResult_t::ncclSuccess
        }
    }
}

/// The calls of this thread since the last look.
pub fn take_calls() -> Vec<&'static str> {
    CALLS.with_borrow_mut(|calls| {
        let taken = calls.clone();
        calls.clear(); // keeps the capacity: a call must not allocate
        taken
    })
}

/// The next recorded call of that name on this thread returns `code`.
pub fn fail_next(name: &'static str, code: ncclResult_t) {
    FAILING.set(Some((name, code)));
}
