//! The ranks of a call.

use std::sync::Arc;

use nccl_ext_core::raw::ncclComm_t;

use crate::entry::Scope;
use crate::m2n::fault::Fault;
use crate::nccl;
use crate::world::{Descriptor, Member};

struct Ready;

// SAFETY: it points to nothing.
unsafe impl Descriptor for Ready {
    const NAME: &'static str = "ncclCommGetAsyncError";
}

/// The member behind a communicator that has not failed (check 27 of M2N 2.1).
///
/// # Safety
/// `comm` is NULL or a live communicator of this backend.
pub(crate) unsafe fn ready(scope: &Scope, comm: ncclComm_t) -> Result<Arc<Member>, Fault> {
    let world = |refusal| Fault::world(Ready::NAME, refusal);
    // SAFETY: this function's contract.
    let member = unsafe { nccl::member(comm) }.map_err(world)?;
    scope.enter(&member);
    // A failed world refuses every operation at once, and says why.
    if member.has_failed() {
        member.barrier(&Ready).map_err(world)?;
    }
    Ok(member)
}
