//! Giving a stream work.

use std::sync::{Arc, Mutex};

use nccl_ext_core::Error;
use nccl_ext_core::raw::cudaStream_t;

use super::event::Point;
use super::host::{self, Rank, RankId};
use super::stream;
use crate::lock::lock;
use crate::refusal::{FailureClass, Outcome, Refusal};

/// Whether a world's calls are complete when they return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deferral {
    Never,
    /// Streams run them later, for this rank.
    Of(RankId),
}

fn wrong_stream(stream: cudaStream_t) -> Refusal {
    Refusal::argument(
        FailureClass::UndefinedBehaviour,
        "stream",
        "the stream is one of this backend's, and lives",
        "such a stream",
        format_args!("{stream:p}"),
    )
}

pub(super) fn failed(error: &Arc<Error>) -> Refusal {
    Refusal::error(Error::clone(error))
}

/// The stream of a call of a rank, and the rank. A stream that has failed takes nothing more, and says
/// why.
fn stream_of(id: RankId, stream: cudaStream_t) -> Outcome<(Arc<stream::Stream>, Arc<Rank>)> {
    let gone = || Refusal::error(Error::RankGone { reason: "the communicator is gone".into() });
    let rank = Rank::find(id).ok_or_else(gone)?;
    host::belong_to(&rank);
    let device = rank.device();
    let found = stream::find(stream, Some(&rank), device).ok_or_else(|| wrong_stream(stream))?;
    match found.failed() {
        Some(error) => Err(failed(&error)),
        None => Ok((found, rank)),
    }
}

/// Runs `work` after everything that was submitted to the stream before it. `call` is the C function.
///
/// What `work` returns is this function's result where calls are complete when they return; else
/// it belongs to the communicator, and the stream runs nothing after a refusal.
pub(crate) fn submit(
    deferral: Deferral,
    stream: cudaStream_t,
    call: &'static str,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Outcome {
    match deferral {
        Deferral::Never => work(),
        Deferral::Of(rank) => {
            let (stream, rank) = stream_of(rank, stream)?;
            stream.run(call, Some(rank), work);
            Ok(())
        }
    }
}

/// Work that runs in the order of its calls, whatever their streams.
#[derive(Default)]
pub(crate) struct CallOrder {
    last: Mutex<Option<Arc<Point>>>,
}

/// As [`submit`], and after the work of the calls before it in `order`.
pub(crate) fn submit_in_order(
    order: &CallOrder,
    deferral: Deferral,
    stream: cudaStream_t,
    call: &'static str,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Outcome {
    let Deferral::Of(rank) = deferral else { return work() };
    let (stream, rank) = stream_of(rank, stream)?;
    let end: Arc<Point> = Arc::default();
    let mut last = lock(&order.last);
    if let Some(before) = last.replace(Arc::clone(&end)) {
        stream.wait_for(&before);
    }
    stream.run(call, Some(rank), work);
    stream.record(&end);
    Ok(())
}

/// As [`submit_in_order`], in time only: the stream does not come after what the calls before did.
/// So ranks meet in the order of their calls, and streams that nothing else orders still race.
pub(crate) fn submit_in_turn(
    order: &CallOrder,
    deferral: Deferral,
    stream: cudaStream_t,
    call: &'static str,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Outcome {
    let Deferral::Of(rank) = deferral else { return work() };
    let (stream, rank) = stream_of(rank, stream)?;
    let end: Arc<Point> = Arc::default();
    let mut last = lock(&order.last);
    let before = last.replace(Arc::clone(&end));
    stream.run(call, Some(rank), move || {
        if let Some(before) = before {
            before.pass();
        }
        work()
    });
    stream.record(&end);
    Ok(())
}

/// As [`submit`], and waits on the calling thread until the work has run: its refusal is the call's.
pub(crate) fn submit_and_wait(
    deferral: Deferral,
    stream: cudaStream_t,
    call: &'static str,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Outcome {
    let Deferral::Of(rank) = deferral else { return work() };
    let (stream, rank) = stream_of(rank, stream)?;
    let result = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&result);
    stream.run(call, Some(rank), move || {
        let outcome = work();
        *lock(&theirs) = Some(outcome);
        Ok(())
    });
    let point: Arc<Point> = Arc::default();
    stream.record(&point);
    point.wait_on_host().map_err(|error| failed(&error))?;
    let outcome = lock(&result).take();
    outcome.unwrap_or(Ok(()))
}

/// Waits on the calling thread until the stream has run what it was given so far.
pub(crate) fn wait_for_stream(deferral: Deferral, stream: cudaStream_t) -> Outcome {
    let Deferral::Of(rank) = deferral else { return Ok(()) };
    let (stream, _) = stream_of(rank, stream)?;
    stream.wait().map_err(|error| failed(&error))
}

/// Waits on the calling thread until all streams of the rank have run what they were given.
pub(crate) fn drain(deferral: Deferral) -> Outcome {
    let Deferral::Of(id) = deferral else { return Ok(()) };
    let Some(rank) = Rank::find(id) else { return Ok(()) };
    host::belong_to(&rank);
    stream::wait_for_all(Some(&rank), rank.device()).map_err(|error| failed(&error))
}
