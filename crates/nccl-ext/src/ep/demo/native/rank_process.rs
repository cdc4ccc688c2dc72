//! One rank, in a process of its own.

use std::io::Read;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nccl_ext_core::{Backend, Comm, Error, UniqueId};

use super::exception::{self, Provoke};
use super::{Load, folder, results};
use crate::ep::demo::modes::ModeRun;
use crate::ep::demo::options::Options;
use crate::ep::demo::outcome::Outcome;
use crate::failure::Failure;
use crate::routing::Routing;

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

/// Runs this rank's part of every mode and leaves the results in the folder.
///
/// # Errors
/// [`Failure`] when libraries or GPU are not there, a peer does not come, or a call fails.
pub(crate) fn run_rank_process(
    routing: &Routing,
    options: &Options,
    process: &RankProcess,
) -> Result<(), Failure> {
    watch_parent();
    let backend = (process.load)().map_err(|error| Failure::Load(Box::new(error)))?;
    let mut seen = match process.provoke {
        Some(provoke) => exception::provoke(routing, process, backend, provoke)?,
        None => Vec::new(),
    };
    for (number, mode) in options.modes.iter().enumerate() {
        let mut outcome = run_mode(routing, options, process, backend, number, &mut seen)
            .map_err(|error| process.failure(routing, &mode.to_string(), error))?;
        outcome.seen =
            seen.drain(..).map(|line| format!("rank {}: {line}", process.rank)).collect();
        results::write(&process.folder, process.rank, number, &outcome)?;
    }
    Ok(())
}

/// Runs a mode. After a provoked exception one more is tolerated: the library may keep an error in
/// its own CUDA runtime that the next caller gets (EP 2.1 #34).
fn run_mode(
    routing: &Routing,
    options: &Options,
    process: &RankProcess,
    backend: Backend,
    number: usize,
    seen: &mut Vec<String>,
) -> Result<Outcome, ProcessError> {
    let run = ModeRun::of(options.modes[number]);
    let attempts = if process.provoke.is_some() { 2 } else { 1 };
    for attempt in 1..=attempts {
        let name = format!("pair-{number}.attempt-{attempt}");
        let comm = process.comm(backend, routing.sizes.ranks, &name)?;
        match run.on_rank(comm, routing, options) {
            Err(error @ Error::Exception { .. }) if attempt < attempts => {
                seen.push(format!("attempt {attempt} after the exception: {error}"));
            }
            result => {
                if attempts > 1 && result.is_ok() {
                    seen.push(format!("attempt {attempt} after the exception: ran to its end"));
                }
                return Ok(result?);
            }
        }
    }
    Ok(Outcome::default())
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
        Ok(Comm::init_rank_on(backend, device, ranks, &id, self.rank)?)
    }

    pub(super) fn failure(&self, routing: &Routing, what: &str, error: ProcessError) -> Failure {
        match error {
            ProcessError::Call(error) => Failure::call(&routing.name, what, error),
            ProcessError::Meeting(error) => Failure::folder("used to meet", &error),
        }
    }
}

/// Ends this process when its parent is gone: nobody would wait for it, and it holds a GPU.
fn watch_parent() {
    thread::spawn(|| {
        let mut byte = [0];
        while std::io::stdin().read(&mut byte).is_ok_and(|bytes| bytes > 0) {}
        // The libraries' own handlers could wait for ever.
        std::process::abort();
    });
}
