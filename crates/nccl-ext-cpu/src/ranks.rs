//! Running one function on every rank of a new world.

use std::fmt;
use std::thread;

use nccl_ext_core::{Comm, Error};

use crate::backend::{backend, deferred_backend};
use crate::config::{CpuConfig, unique_id};
use crate::refusal::panic_text;

/// How a rank ended that did not succeed.
#[derive(Debug)]
pub enum RankFailure<E> {
    /// Its function returned an error.
    Error(E),
    /// It panicked, with this message.
    Panic(String),
}

impl<E: fmt::Display> fmt::Display for RankFailure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panic(message) => write!(f, "the rank panicked: {message}"),
        }
    }
}

impl<E: std::error::Error> std::error::Error for RankFailure<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Error(error) => error.source(),
            Self::Panic(_) => None,
        }
    }
}

/// Makes a world of `ranks` threads, runs `body` on each with its communicator, and gives the
/// results in rank order when all have ended.
///
/// The backend is the one that the settings ask for: [`deferred_backend`] with
/// [`CpuConfig::deferred`], else [`backend`](crate::backend()).
///
/// A rank that panics or returns early drops its communicator; peers that wait for it, or try to
/// meet it later, get [`Error::PeerFailed`].
///
/// # Errors
/// Each rank has its own result; [`RankFailure::Error`] holds what `body` returned, or what
/// joining the world gave.
pub fn run_ranks<T, E, F>(
    ranks: usize,
    config: &CpuConfig,
    body: F,
) -> Vec<Result<T, RankFailure<E>>>
where
    T: Send,
    E: Send + From<Error>,
    F: Fn(Comm) -> Result<T, E> + Sync,
{
    let id = unique_id(config);
    let backend = if config.deferred.is_some() { deferred_backend() } else { backend() };
    let run = |rank| -> Result<T, E> {
        let comm = Comm::init_rank(backend, ranks, &id, rank)?;
        body(comm)
    };
    thread::scope(|scope| {
        let run = &run;
        let spawn = |rank| {
            let name = format!("rank {rank}");
            thread::Builder::new().name(name).spawn_scoped(scope, move || run(rank))
        };
        let threads: Vec<_> = (0..ranks).map(spawn).collect();
        let end = |thread: std::io::Result<thread::ScopedJoinHandle<'_, Result<T, E>>>| match thread
        {
            Ok(thread) => match thread.join() {
                Ok(result) => result.map_err(RankFailure::Error),
                Err(payload) => Err(RankFailure::Panic(panic_text(&*payload).to_owned())),
            },
            Err(error) => {
                let reason = format!("its thread could not be started: {error}");
                Err(RankFailure::Error(Error::RankGone { reason }.into()))
            }
        };
        threads.into_iter().map(end).collect()
    })
}
