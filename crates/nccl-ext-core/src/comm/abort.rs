//! Giving a communicator up.

use std::fmt;
use std::sync::Arc;

use super::Comm;
use crate::error::{Error, Result};

impl Comm {
    /// Marks it for abort: something on it was leaked or left out of step, so it will not be
    /// finalised in good order. Calls on other objects of it go on.
    pub fn mark_for_abort(&self) {
        self.0.end.mark();
    }

    /// Whether it is marked for abort.
    #[must_use]
    pub fn is_marked_for_abort(&self) -> bool {
        self.0.end.is_marked()
    }

    /// Tells the peers, where the backend can, that this rank will not come to the next
    /// collective, and marks the communicator for abort.
    pub fn fail(&self, error: &Error) {
        self.mark_for_abort();
        if let Some(hooks) = self.backend().hooks() {
            // SAFETY: the communicator lives as long as this handle.
            unsafe { (hooks.fail_rank)(self.0.raw, error) };
        }
    }

    /// Gives the communicator up, from any thread and at once: for when a peer is dead and work of
    /// this rank waits for it in vain. The first reason stays. The peers are told where the backend
    /// can.
    ///
    /// From here on no native call is begun on the communicator, its groups and handles; calls that
    /// are inside go on. Nothing can stop a kernel, so work that is not done is left alone with all
    /// that it uses: until it is done, drops of buffers of the device leave their memory behind, and
    /// nothing waits for the streams that this communicator was used on. Neither a free nor NCCL's own
    /// abort returns under a waiting kernel of libnccl_ep (EP 6.4); so that abort is called when the
    /// last owner goes, if the work is done then, and otherwise never.
    #[doc(alias = "ncclCommAbort")]
    pub fn abort(&self, why: impl fmt::Display) {
        let cause = Arc::new(Error::RankGone { reason: why.to_string() });
        if !self.0.end.abort(&cause) {
            return;
        }
        self.0.last_use.abandon(&cause);
        let (device, work) = (self.0.device, Arc::clone(&self.0.last_use));
        let is_done = move || matches!(work.is_done(), Ok(true));
        device.backend().abandoned().add_work(device.ordinal(), &cause, is_done);
        self.fail(&cause);
    }

    /// Refuses native calls once the communicator was aborted.
    ///
    /// # Errors
    /// [`Error::Poisoned`] with the reason.
    #[inline]
    pub fn refuse_if_aborted(&self) -> Result<()> {
        match self.0.end.aborted() {
            Some(cause) => Err(poisoned(cause)),
            None => Ok(()),
        }
    }
}

#[cold]
fn poisoned(cause: &Arc<Error>) -> Error {
    Error::Poisoned { cause: Arc::clone(cause) }
}
