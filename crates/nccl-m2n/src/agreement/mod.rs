//! Ranks compare what they are about to ask for, before anybody asks.

mod call;
mod difference;
mod failure;

use std::sync::Arc;

use nccl_ext_core::{Comm, Error, Result};

pub(crate) use call::Call;

use crate::plan::{CONDITION_WORDS, Conditions, Digest, condition_words};
use call::CALL_WORDS;
use failure::NO_FAILURE;

/// What one rank is about to do.
pub(crate) struct Intent<'a> {
    pub(crate) digest: Digest,
    pub(crate) calls: &'a [Call],
    /// Why it will not.
    pub(crate) failed: Option<&'a Error>,
}

/// Exchanges intents. Collective: the verdict, the inner result, is an error on every rank of the
/// communicator, or on none. It is the own failure, [`Error::PeerFailed`] for that of the first
/// other rank that has one, or [`Error::DigestMismatch`] when ranks mean different things.
///
/// # Errors
/// What the exchange reports; there is no verdict then.
pub(crate) fn exchange_intents(
    comm: &Comm,
    conditions: &Conditions,
    intent: &Intent<'_>,
) -> Result<Result<()>> {
    let own_failure = || intent.failed.map_or(Ok(()), |error| Err(error.clone()));
    if comm.size() == 1 {
        return Ok(own_failure());
    }
    let Digest([first, second]) = intent.digest;
    // Failure, digest, number of calls.
    let own = [failure::encode(intent.failed), first, second, intent.calls.len() as u64];
    let all = comm.all_gather_words(&own)?;
    let ranks: Vec<&[u64]> = all.iter().collect();
    if let Some(rank) = ranks.iter().position(|words| words[0] != NO_FAILURE) {
        let error = Arc::new(failure::decode(ranks[rank][0], rank));
        return Ok(own_failure().and(Err(Error::PeerFailed { rank, error })));
    }
    let Some(rank) = ranks.iter().position(|words| words[1..] != ranks[0][1..]) else {
        return Ok(Ok(()));
    };
    let most = ranks.iter().map(|words| words[3]).max().unwrap_or(0);
    let most = usize::try_from(most).unwrap_or(0);
    let first_difference = find_difference(comm, conditions, intent.calls, most, rank)?;
    Ok(Err(Error::DigestMismatch { rank, first_difference }))
}

/// Sends everything, and finds what `rank` and rank 0 do not have in common. Collective.
fn find_difference(
    comm: &Comm,
    conditions: &Conditions,
    calls: &[Call],
    most: usize,
    rank: usize,
) -> Result<String> {
    let mut own = Vec::with_capacity(CONDITION_WORDS + most * CALL_WORDS);
    own.extend(condition_words(conditions));
    calls.iter().for_each(|call| own.extend(call.words()));
    own.resize(CONDITION_WORDS + most * CALL_WORDS, 0);
    let all = comm.all_gather_words(&own)?;
    Ok(difference::describe(all.of(0), all.of(rank), rank))
}
