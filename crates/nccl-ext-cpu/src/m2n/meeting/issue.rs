//! From the calling thread to the stream.

use std::sync::Arc;

use nccl_ext_core::raw::cudaStream_t;

use super::caller::Caller;
use super::exchange::exchange;
use crate::m2n::epoch::Epoch;
use crate::m2n::fault::Fault;
use crate::m2n::progress::{Progress, Running};
use crate::m2n::published::{EntryFailure, Published};
use crate::queue::{self, Deferral};
use crate::world::{Descriptor, Member};

/// Where the work of a call goes.
pub(crate) struct Issue<'a> {
    pub(crate) epoch: &'a Arc<Epoch>,
    pub(crate) member: &'a Arc<Member>,
    pub(crate) stream: cudaStream_t,
    pub(crate) caller: Caller,
}

/// Gives the stream one piece of work: these transfers, one step after the other.
///
/// A rank that was refused alone gives it, too, for its peers wait for this rank, and returns its
/// own refusal at once.
///
/// # Safety
/// Where an entry's rank is active, its buffer holds a tile until the work has run, and is not used
/// by anybody else meanwhile; source tiles may be read by others.
pub(crate) unsafe fn issue(
    Issue { epoch, member, stream, caller }: Issue<'_>,
    mut steps: Vec<Published>,
) -> Result<(), EntryFailure<Fault>> {
    let Some(first) = steps.first() else { return Ok(()) };
    let index = first.entries.first().map_or(0, |entry| entry.index);
    let refused = first.refused.clone();
    let was_told = refused.is_some();
    if was_told {
        steps.truncate(1);
    }
    let is_deferred = member.deferral() != Deferral::Never;
    let meets_now = is_deferred && epoch.is_first_use(member);
    let progress: Arc<Progress> = Arc::default();
    if is_deferred {
        epoch.note(&progress);
    }
    let (running, theirs) = (Running::new(&progress), Arc::clone(member));
    // The vendor's calls of a communicator run in their order on a stream of the library's (M2N 4.4),
    // which is no order that callers are promised.
    let (order, deferral) = (member.collectives(), member.deferral());
    let outcome = queue::submit_in_turn(order, deferral, stream, caller.name(), move || {
        for step in steps {
            // SAFETY: this function's contract.
            let Err(stop) = (unsafe { exchange(&theirs, step) }) else { continue };
            running.fail(stop.clone());
            // A call that waits, or that has been refused, has the answer itself.
            return if meets_now || was_told { Ok(()) } else { Err(caller.refusal(stop)) };
        }
        Ok(())
    });
    if let Some(own) = refused {
        return Err(own.into());
    }
    // Waits: the vendor's ranks meet on the host in the first call of a communicator (M2N 4.4).
    if meets_now && outcome.is_ok() {
        progress.wait();
    } else if is_deferred && outcome.is_ok() {
        return Ok(());
    }
    if let Some(stop) = progress.take_failure() {
        return Err(stop);
    }
    let world = |refusal| EntryFailure { index, why: Fault::world(Published::NAME, refusal) };
    outcome.map_err(world)
}
