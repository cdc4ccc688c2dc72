//! Refusals that give the object back.

use std::fmt;

use super::Error;

/// A refused call that takes its object: the error, and the object where it still exists.
///
/// Turns into [`Error`] with `?`.
pub struct Refused<T> {
    /// Why.
    pub error: Box<Error>,
    /// The object, when nothing happened to it and the call can be made again.
    pub value: Option<T>,
}

impl<T> Refused<T> {
    /// The object is unharmed.
    pub fn kept(error: Error, value: T) -> Self {
        Self { error: Box::new(error), value: Some(value) }
    }

    /// The object is gone.
    pub fn lost(error: Error) -> Self {
        Self { error: Box::new(error), value: None }
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .field("kept", &self.value.is_some())
            .finish()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for Refused<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(value: Refused<T>) -> Self {
        *value.error
    }
}
