//! One rank, in a process of its own.

use std::io::Read;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nccl_ext_core::{Backend, Comm, Error, UniqueId};

use super::exception::{self, Provoke};
use super::{Load, folder, results};
use crate::demo::outcome::Outcome;
use crate::demo::{Options, Pair, run_rank};
use crate::failure::Failure;
use crate::routing::Routing;

/// A rank's place among the processes of a run.
#[derive(Debug)]
pub struct Seat {
    /// Gives the backend.
    pub load: Load,
    /// Its number, and its GPU's.
    pub rank: usize,
    /// Where the ranks meet.
    pub folder: PathBuf,
    /// How long it waits there.
    pub timeout: Duration,
    /// Whether an exception is to be provoked first, and where.
    pub provoke: Option<Provoke>,
}

/// Runs this rank's part of every pair and leaves the results in the folder.
///
/// # Errors
/// [`Failure`] when libraries or GPU are not there, a peer does not come, or a call fails.
pub fn run_seat(routing: &Routing, options: &Options, seat: &Seat) -> Result<(), Failure> {
    watch_parent();
    let backend = (seat.load)().map_err(|error| Failure::Load(Box::new(error)))?;
    let mut seen = match seat.provoke {
        Some(provoke) => exception::provoke(routing, seat, backend, provoke)?,
        None => Vec::new(),
    };
    for (number, pair) in options.pairs.iter().enumerate() {
        let mut outcome = run_pair(routing, options, seat, backend, number, &mut seen)
            .map_err(|error| seat.failure(routing, pair.name, error))?;
        outcome.seen = seen.drain(..).map(|line| format!("rank {}: {line}", seat.rank)).collect();
        results::write(&seat.folder, seat.rank, number, &outcome)?;
    }
    Ok(())
}

/// Runs a pair. After a provoked exception one more is tolerated: the library may keep an error in
/// its own CUDA runtime that the next caller gets (EP 2.1 #34).
fn run_pair(
    routing: &Routing,
    options: &Options,
    seat: &Seat,
    backend: Backend,
    number: usize,
    seen: &mut Vec<String>,
) -> Result<Outcome, SeatError> {
    let pair: &Pair = options.pairs[number];
    let attempts = if seat.provoke.is_some() { 2 } else { 1 };
    for attempt in 1..=attempts {
        let name = format!("pair-{number}.attempt-{attempt}");
        let comm = seat.comm(backend, routing.sizes.ranks, &name)?;
        match run_rank(comm, pair, routing, options) {
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
pub(super) enum SeatError {
    Call(Error),
    Meeting(std::io::Error),
}

impl From<Error> for SeatError {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl Seat {
    /// Meets the others in a new communicator, on this rank's GPU.
    pub(super) fn comm(
        &self,
        backend: Backend,
        ranks: usize,
        name: &str,
    ) -> Result<Comm, SeatError> {
        let name = format!("{name}.id");
        let id = if self.rank == 0 {
            let id = UniqueId::new(backend)?;
            folder::publish(&self.folder, &name, &id.to_bytes()).map_err(SeatError::Meeting)?;
            id
        } else {
            let bytes = folder::await_file(&self.folder, &name, self.timeout);
            let bytes = bytes.map_err(SeatError::Meeting)?;
            let bytes = bytes.try_into().map_err(|bytes: Vec<u8>| {
                let text = format!("{name} has {} bytes", bytes.len());
                SeatError::Meeting(std::io::Error::other(text))
            })?;
            UniqueId::from_bytes(bytes)
        };
        let device = i32::try_from(self.rank).unwrap_or(i32::MAX);
        Ok(Comm::init_rank_on(backend, device, ranks, &id, self.rank)?)
    }

    pub(super) fn failure(
        &self,
        routing: &Routing,
        pair: &'static str,
        error: SeatError,
    ) -> Failure {
        match error {
            SeatError::Call(error) => {
                Failure::Call { file: routing.name.clone(), pair, error: Box::new(error) }
            }
            SeatError::Meeting(error) => Failure::folder("used to meet", &error),
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
