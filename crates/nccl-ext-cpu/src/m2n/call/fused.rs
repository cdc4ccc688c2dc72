//! A bucket of a group whose entries run together (M2N 2.6, 4.3).

use std::sync::Arc;

use super::launch::{API, Launch};
use super::runtime;
use super::single::Request;
use crate::entry::Scope;
use crate::m2n::check::{bounds, ranges};
use crate::m2n::descriptor::Layout;
use crate::m2n::epoch::Epoch;
use crate::m2n::fault::{BrokenRule, Fault};
use crate::m2n::meeting::{Caller, Issue, issue, ready};
use crate::m2n::plan::load_balance;
use crate::m2n::published::{Entry, EntryFailure};
use crate::world::Member;

/// What became of a bucket.
pub(crate) enum Fused {
    Done,
    /// It was told to go one by one.
    OneByOne,
}

/// Runs a bucket: requests with their indices in the group of `count` entries. Its launches are one
/// piece of work of the stream.
///
/// # Safety
/// The C contract of `ncclReshard` for each request.
pub(super) unsafe fn run(
    scope: &Scope,
    bucket: &[(usize, Request)],
    count: usize,
) -> Result<Fused, EntryFailure<Fault>> {
    let Some(last) = bucket.last() else { return Ok(Fused::Done) };
    // SAFETY: this function's contract.
    let checked = unsafe { check(scope, bucket, last)? };
    let Some(Checked { epoch, member, launches, mut refused }) = checked else {
        return Ok(Fused::OneByOne);
    };
    // What a launch is refused for ends the bucket, but not the launches before it.
    let mut outcome = Ok(Fused::Done);
    let mut issued = Vec::with_capacity(launches.len());
    for launch in launches {
        match launch.check(&epoch.environment, member.size()) {
            Ok(()) => issued.push(launch.publish(refused.take())),
            Err(stop) => {
                outcome = Err(stop.into());
                break;
            }
        }
    }
    let (stream, caller) = (last.1.stream, Caller::Bucket { count });
    let to = Issue { epoch: &epoch, member: &member, stream, caller };
    // SAFETY: this function's contract.
    unsafe { issue(to, issued)? };
    outcome
}

/// What a bucket needs when it has been checked.
struct Checked {
    epoch: Arc<Epoch>,
    member: Arc<Member>,
    launches: Vec<Launch>,
    /// What this rank alone has found wrong.
    refused: Option<EntryFailure<BrokenRule>>,
}

/// Checks a bucket; `None` when it was told to go one by one.
///
/// Each check looks at all entries before the next one begins, so nothing is issued when one
/// fails.
///
/// # Safety
/// As [`run`].
unsafe fn check(
    scope: &Scope,
    bucket: &[(usize, Request)],
    &(last, Request { handle, comm, .. }): &(usize, Request),
) -> Result<Option<Checked>, EntryFailure<Fault>> {
    let mut described = Vec::with_capacity(bucket.len());
    for &(index, ref request) in bucket {
        described.push((index, request.describe(API).map_err(EntryFailure::at(index))?));
    }
    // What concerns the bucket as a whole is blamed on its last entry, as the vendor's library
    // does.
    let epoch = runtime::acquire(API, handle).map_err(EntryFailure::at(last))?;
    let environment = &epoch.environment;
    // SAFETY: this function's contract.
    let member = unsafe { ready(scope, comm) }.map_err(EntryFailure::at(last))?;
    if environment.split_comm == Some(true) {
        return Ok(None);
    }
    let (rank, ranks) = (member.rank(), member.size());

    // The first thing that only this rank can know. Others wait for it unless they, too, find
    // something wrong, so it is shown to them when nothing else is.
    let mut alone: Option<EntryFailure<BrokenRule>> = None;
    let mut entries = Vec::with_capacity(described.len());
    let mut agreed = || {
        for &(index, transfer) in &described {
            bounds::intervals(&transfer.layout, ranks).map_err(EntryFailure::at(index))?;
            if let Err(why) = bounds::buffers(API, &transfer, rank) {
                alone.get_or_insert(EntryFailure { index, why });
            }
        }
        for &(index, transfer) in &described {
            let layout = &transfer.layout;
            sizes(layout).map_err(EntryFailure::at(index))?;
            let balance = load_balance(environment, layout, ranks, true);
            entries.push(Entry { index, transfer, balance });
        }
        Ok(())
    };
    let mut outcome: Result<(), EntryFailure<BrokenRule>> = agreed();
    if outcome.is_ok() && alone.is_none() {
        alone = ranges::check_entries(API, &entries).err();
    }
    let mut launches = Vec::new();
    if outcome.is_ok() {
        launches = Launch::of(environment, entries);
        outcome = launches.first().map_or(Ok(()), |launch| launch.check(environment, ranks));
    }
    match (outcome, &alone) {
        (Err(_), Some(own)) => return Err(own.clone().into()),
        (Err(stop), None) => return Err(stop.into()),
        (Ok(()), _) => {}
    }
    Ok(Some(Checked { epoch, member, launches, refused: alone }))
}

/// Global shapes and overflow, which the fused path does look at.
fn sizes(layout: &Layout) -> Result<(), BrokenRule> {
    bounds::extents(API, layout)?;
    bounds::same_tensor(API, layout)?;
    bounds::sizes(API, layout)?;
    bounds::addressable(API, layout)
}
