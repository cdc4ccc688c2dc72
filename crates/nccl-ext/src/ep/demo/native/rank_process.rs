//! A rank that is a process of its own, and how it meets the others.

use std::path::PathBuf;
use std::time::Duration;

use nccl_ext_core::{Backend, Comm, Device, Error, UniqueId};

use super::folder;
use crate::failure::Failure;
use crate::routing::Routing;

/// Gives the backend that ranks run on.
pub(crate) type Load = fn() -> nccl_ext_core::Result<Backend>;

/// Where the exception is provoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provoke {
    /// On the thread that goes on afterwards.
    SameThread,
    /// On a thread of its own: CUDA keeps errors by thread.
    OtherThread,
}

/// One of the processes of a run, and how it meets the others.
#[derive(Debug)]
pub(crate) struct RankProcess {
    /// Gives the backend.
    pub(crate) load: Load,
    /// Its number, and its GPU's.
    pub(crate) rank: usize,
    /// Where the ranks meet.
    pub(crate) folder: PathBuf,
    /// How long it waits there.
    pub(crate) timeout: Duration,
    /// Whether an exception is to be provoked first, and where.
    pub(crate) provoke: Option<Provoke>,
}

/// Why a rank has no result.
pub(super) enum ProcessError {
    Call(Error),
    Meeting(std::io::Error),
}

impl From<Error> for ProcessError {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl RankProcess {
    /// Meets the others in a new communicator, on this rank's GPU.
    pub(super) fn comm(
        &self,
        backend: Backend,
        ranks: usize,
        name: &str,
    ) -> Result<Comm, ProcessError> {
        let name = format!("{name}.id");
        let id = if self.rank == 0 {
            let id = UniqueId::new(backend)?;
            folder::publish(&self.folder, &name, &id.to_bytes()).map_err(ProcessError::Meeting)?;
            id
        } else {
            let bytes = folder::await_file(&self.folder, &name, self.timeout);
            let bytes = bytes.map_err(ProcessError::Meeting)?;
            let bytes = bytes.try_into().map_err(|bytes: Vec<u8>| {
                let text = format!("{name} has {} bytes", bytes.len());
                ProcessError::Meeting(std::io::Error::other(text))
            })?;
            UniqueId::from_bytes(bytes)
        };
        let device = i32::try_from(self.rank).unwrap_or(i32::MAX);
        Ok(Comm::init_rank_on(Device::new(backend, device), ranks, &id, self.rank)?)
    }

    pub(super) fn failure(&self, routing: &Routing, what: &str, error: ProcessError) -> Failure {
        match error {
            ProcessError::Call(error) => Failure::call(&routing.name, what, error),
            ProcessError::Meeting(error) => Failure::folder("used to meet", &error),
        }
    }
}
