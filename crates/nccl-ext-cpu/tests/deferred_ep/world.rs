//! Worlds whose ranks order their streams themselves.

use std::collections::BTreeSet;

use nccl_ext_core::{Comm, Error, Event, Result, Stream};
use nccl_ext_cpu::{RankFailure, run_ranks};
use nccl_ext_test::worlds::config;

/// How many seeds a test of right results tries.
const SEEDS: u64 = 6;

/// Runs `body` on every rank of worlds of several seeds.
#[track_caller]
pub(crate) fn on_deferred_ranks(ranks: usize, body: impl Fn(&Comm) -> Result<()> + Sync) {
    for seed in 0..SEEDS {
        let ends = run_ranks(ranks, &config().deferred(seed), |comm| body(&comm));
        let failures: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
        assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    }
}

/// A race, as the first rank heard of it that did.
#[derive(Debug)]
pub(crate) struct Race {
    /// The C functions of both.
    pub(crate) calls: BTreeSet<&'static str>,
    pub(crate) streams: BTreeSet<String>,
    pub(crate) buffer: String,
}

/// Runs `body` on every rank of worlds of several seeds, in each of which there is a race.
#[track_caller]
pub(crate) fn races(ranks: usize, body: impl Fn(&Comm) -> Result<()> + Sync) -> Vec<Race> {
    let race = |seed| {
        let ends = run_ranks(ranks, &config().deferred(seed), |comm| body(&comm));
        let race = ends.iter().find_map(|end| match end {
            Err(RankFailure::Error(error)) => race_in(error),
            _ => None,
        });
        race.unwrap_or_else(|| panic!("seed {seed}: no race in {ends:#?}"))
    };
    (0..SEEDS).map(race).collect()
}

fn race_in(error: &Error) -> Option<Race> {
    match error {
        Error::PeerFailed { error, .. } => race_in(error),
        Error::Race { first, second, buffer, .. } => Some(Race {
            calls: [first.call, second.call].into(),
            streams: [first.stream.clone(), second.stream.clone()].into(),
            buffer: buffer.clone(),
        }),
        _ => None,
    }
}

/// Lets what `after` is given from now on wait for what `before` was given so far.
pub(crate) fn order(comm: &Comm, before: Stream<'_>, after: Stream<'_>) -> Result<()> {
    let mut event = Event::new(comm)?;
    event.record(before)?;
    after.wait(&event)
}

/// The calls that most races are of.
pub(crate) const DISPATCH: &str = "ncclEpDispatch";
pub(crate) const COMBINE: &str = "ncclEpCombine";
pub(crate) const FILL: &str = "cuMemsetD8Async";

/// All races are of these two calls, on two streams.
#[track_caller]
pub(crate) fn assert_calls(races: &[Race], calls: [&'static str; 2]) {
    for race in races {
        assert_eq!(race.calls, calls.into(), "{race:?}");
        assert_eq!(race.streams.len(), 2, "{race:?}");
    }
}
