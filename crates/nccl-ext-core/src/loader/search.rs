//! The record of a search.

use std::path::{Path, PathBuf};

use crate::error::{Error, LoadAttempt};

/// Why a candidate was not taken.
pub(super) enum Trouble {
    /// The dynamic linker would not open it; its words.
    Unopened(String),
    /// It was opened and will not do.
    Refused(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// What was tried for one library.
pub(super) struct Search {
    library: &'static str,
    attempts: Vec<LoadAttempt>,
    /// Candidates that were there.
    found: usize,
    refused: Vec<Error>,
}

impl Search {
    pub(super) fn new(library: &'static str) -> Self {
        Self { library, attempts: Vec::new(), found: 0, refused: Vec::new() }
    }

    /// Nothing is there.
    pub(super) fn absent(&mut self, origin: &str, candidate: PathBuf) {
        self.record(origin, candidate, "no such file".into());
    }

    /// The dynamic linker found nothing, or would not open what it found.
    pub(super) fn unknown_to_linker(&mut self, origin: &str, name: &Path, reason: String) {
        self.record(origin, name.into(), reason);
    }

    /// A candidate that is there will not do.
    pub(super) fn refuse(&mut self, origin: &str, candidate: &Path, trouble: Trouble) {
        self.found += 1;
        let reason = match &trouble {
            Trouble::Unopened(reason) => reason.clone(),
            Trouble::Refused(error) => error.to_string(),
        };
        tracing::debug!(library = self.library, candidate = %candidate.display(), reason, "refused");
        self.record(origin, candidate.into(), reason);
        if let Trouble::Refused(error) = trouble {
            self.refused.push(error);
        }
    }

    fn record(&mut self, origin: &str, candidate: PathBuf, reason: String) {
        self.attempts.push(LoadAttempt { origin: origin.into(), candidate, reason });
    }

    /// Nothing would do. Where one file was there, what is wrong with it is the answer; the places
    /// that have none are beside the point.
    pub(super) fn fail(mut self) -> Error {
        match (self.found, self.refused.pop()) {
            (1, Some(error)) => error,
            _ => Error::Load { library: self.library, attempts: self.attempts },
        }
    }
}
