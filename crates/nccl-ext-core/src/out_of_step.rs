//! Whether this rank still goes along with its peers.

use std::sync::{Arc, OnceLock};

use crate::comm::Comm;
use crate::error::{Error, Result};

/// Remembers the first error after which an object cannot be used any more, and refuses its later
/// calls with it.
///
/// *Diverged*: this rank did not come to a collective that its peers are in, or coming to. They are
/// told, where the backend can. *Poisoned*: a native call left objects in a state that nobody
/// knows.
#[derive(Debug, Default)]
pub struct OutOfStep(OnceLock<State>);

#[derive(Debug)]
enum State {
    Diverged(Arc<Error>),
    Poisoned(Arc<Error>),
}

impl OutOfStep {
    /// In step.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Refuses a call once something has happened.
    ///
    /// # Errors
    /// [`Error::Diverged`] or [`Error::Poisoned`], with the error that did it.
    pub fn check(&self) -> Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some(State::Diverged(cause)) => Err(Error::Diverged { cause: Arc::clone(cause) }),
            Some(State::Poisoned(cause)) => Err(Error::Poisoned { cause: Arc::clone(cause) }),
        }
    }

    /// Refuses later calls as poisoned. Tells nobody.
    pub fn poison(&self, error: &Error) {
        let _ = self.0.set(State::Poisoned(Arc::new(error.clone())));
    }

    /// As [`poison`](Self::poison); the peers of the communicator's rank are told, once.
    pub fn poison_and_tell(&self, comm: &Comm, error: &Error) {
        if self.0.set(State::Poisoned(Arc::new(error.clone()))).is_ok() {
            comm.fail(error);
        }
    }

    /// Refuses later calls as diverged, whatever kind of error it is: this rank leaves its peers
    /// for a reason that they do not know. They are told, once.
    pub fn diverge_and_tell(&self, comm: &Comm, error: &Error) {
        if self.diverge(error) {
            comm.fail(error);
        }
    }

    /// As [`diverge_and_tell`](Self::diverge_and_tell) after an error that a collective may have
    /// given: peers that it came from know, and are not told.
    pub fn diverge_after(&self, comm: &Comm, error: &Error) {
        if !self.diverge(error) {
            return;
        }
        match error {
            Error::PeerFailed { .. } | Error::RankGone { .. } | Error::Timeout { .. } => {
                comm.mark_for_abort();
            }
            _ => comm.fail(error),
        }
    }

    /// Whether it is the first error.
    fn diverge(&self, error: &Error) -> bool {
        self.0.set(State::Diverged(Arc::new(error.clone()))).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::backend::Hooks;
    use crate::raw::ncclComm_t;
    use crate::stub;

    thread_local! {
        /// What the peers were told.
        static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    unsafe fn tell(_comm: ncclComm_t, error: &Error) {
        TOLD.with_borrow_mut(|told| told.push(error.to_string()));
    }

    fn comm() -> Comm {
        stub::comm_with(Hooks { take_error: || None, fail_rank: tell })
    }

    fn told() -> Vec<String> {
        TOLD.take()
    }

    fn gone(reason: &str) -> Error {
        Error::RankGone { reason: reason.into() }
    }

    fn busy(what: &'static str) -> Error {
        Error::Busy { what, reason: "it is".into() }
    }

    #[test]
    fn the_first_error_stays_and_is_told_once() {
        let (comm, cell) = (comm(), OutOfStep::new());
        assert!(cell.check().is_ok() && !comm.is_marked_for_abort());
        cell.diverge_and_tell(&comm, &gone("first"));
        cell.diverge_and_tell(&comm, &gone("second"));
        cell.diverge_after(&comm, &busy("third"));
        cell.poison_and_tell(&comm, &busy("fourth"));
        cell.poison(&busy("fifth"));
        let error = cell.check().unwrap_err();
        assert!(matches!(&error, Error::Diverged { cause } if cause.to_string() == "first"));
        assert_eq!(told(), ["first"]);
        assert!(comm.is_marked_for_abort());
    }

    #[test]
    fn poison_is_told_where_it_is_asked_for() {
        let (comm, cell) = (comm(), OutOfStep::default());
        cell.poison_and_tell(&comm, &busy("it"));
        let error = cell.check().unwrap_err();
        assert!(
            matches!(&error, Error::Poisoned { cause } if cause.to_string() == "it is busy: it is")
        );
        assert_eq!(told().len(), 1);
        let cell = OutOfStep::new();
        cell.poison(&busy("it"));
        assert!(matches!(cell.check().unwrap_err(), Error::Poisoned { .. }));
        assert!(told().is_empty());
    }

    #[test]
    fn peers_that_an_error_came_from_are_not_told() {
        let phase = "a test";
        let waited = std::time::Duration::ZERO;
        for error in [
            gone("it left"),
            Error::PeerFailed { rank: 1, error: Arc::new(busy("it")) },
            Error::Timeout { phase, ranks: vec![1], waited },
        ] {
            let (comm, cell) = (comm(), OutOfStep::new());
            cell.diverge_after(&comm, &error);
            assert!(matches!(cell.check().unwrap_err(), Error::Diverged { .. }));
            assert!(told().is_empty() && comm.is_marked_for_abort(), "{error}");
        }
        let (comm, cell) = (comm(), OutOfStep::new());
        cell.diverge_after(&comm, &busy("it"));
        assert_eq!(told(), ["it is busy: it is"]);
    }
}
