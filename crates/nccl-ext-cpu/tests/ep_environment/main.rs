//! libnccl_ep on the CPU backend, with variables of the environment, which a group reads when it is
//! made. They are the whole process's: tests that set them have this binary, and take turns.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod import;
mod nvlink_dup;
mod timeout;

use std::sync::{Mutex, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Runs `body` while these variables have these values. Its ranks end before it returns.
fn with_environment<T>(values: &[(&'static str, &str)], body: impl FnOnce() -> T) -> T {
    /// Removes the variables, also after a panic.
    struct Set(Vec<&'static str>);
    impl Drop for Set {
        fn drop(&mut self) {
            for name in &self.0 {
                // SAFETY: as below.
                unsafe { std::env::remove_var(name) };
            }
        }
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _set = Set(values.iter().map(|(name, _)| *name).collect());
    for (name, value) in values {
        // SAFETY: tests of this binary take turns, no rank of another runs, and nothing in it reads
        // the environment but by `std`.
        unsafe { std::env::set_var(name, value) };
    }
    body()
}
