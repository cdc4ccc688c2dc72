//! What a rank does that is a process of its own.

use std::io::Read;
use std::thread;

use nccl_ext_core::{Backend, Error};

use super::rank_process::{ProcessError, RankProcess};
use super::{exception, results};
use crate::ep::demo::modes;
use crate::ep::demo::options::Options;
use crate::ep::demo::outcome::Outcome;
use crate::failure::Failure;
use crate::routing::Routing;

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
    let attempts = if process.provoke.is_some() { 2 } else { 1 };
    for attempt in 1..=attempts {
        let name = format!("pair-{number}.attempt-{attempt}");
        let comm = process.comm(backend, routing.sizes.ranks, &name)?;
        match modes::run(options.modes[number], comm, routing, options) {
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

/// Ends this process when its parent is gone: nobody would wait for it, and it holds a GPU.
fn watch_parent() {
    thread::spawn(|| {
        let mut byte = [0];
        while std::io::stdin().read(&mut byte).is_ok_and(|bytes| bytes > 0) {}
        // The libraries' own handlers could wait for ever.
        std::process::abort();
    });
}
