//! Locks that a panic does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what a panic may have left behind. A panic is caught where the C function was entered and
/// fails the world there, so nobody works on with a state that was half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
