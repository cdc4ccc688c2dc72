//! One reshard on its own (M2N 2.1).

use std::sync::Arc;

use nccl_ext_core::raw::{cudaStream_t, ncclComm_t};
use nccl_m2n_sys::ncclM2nHandle_t;

use super::runtime;
use crate::entry::Scope;
use crate::m2n::check::{bounds, limits};
use crate::m2n::descriptor::{Layout, RawTensor, Transfer, describe};
use crate::m2n::environment::{CopyAlgorithm, Environment, LoadBalance};
use crate::m2n::epoch::Epoch;
use crate::m2n::fault::{BrokenRule, Fault};
use crate::m2n::meeting::{Caller, Issue, issue, ready};
use crate::m2n::plan::load_balance;
use crate::m2n::published::{Entry, EntryFailure, Published};
use crate::world::Member;

/// The arguments of a reshard, copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) handle: ncclM2nHandle_t,
    pub(crate) comm: ncclComm_t,
    pub(crate) src: Option<RawTensor>,
    pub(crate) dst: Option<RawTensor>,
    pub(crate) stream: cudaStream_t,
}

impl Request {
    /// Checks 1 to 25.
    pub(crate) fn describe(&self, api: &str) -> Result<Transfer, BrokenRule> {
        describe(api, !self.comm.is_null(), self.src.as_ref(), self.dst.as_ref())
    }
}

/// Also what a single entry of a group goes through, with this name in its texts.
pub(crate) const API: &str = "ncclReshard";

/// # Safety
/// The C contract of `ncclReshard`.
pub(crate) unsafe fn reshard(
    scope: &Scope,
    request: &Request,
    caller: Caller,
) -> Result<(), Fault> {
    // SAFETY: this function's contract.
    let (epoch, member, published) = unsafe { check(scope, request)? };
    let to = Issue { epoch: &epoch, member: &member, stream: request.stream, caller };
    // SAFETY: this function's contract: an active rank's buffer holds its tile.
    unsafe { issue(to, vec![published]) }.map_err(|stop| stop.why)
}

/// Settings, the rank, and what it shows to the others.
type Checked = (Arc<Epoch>, Arc<Member>, Published);

/// What this rank finds on its own, and what it has to show to the others.
///
/// # Safety
/// As [`reshard`].
unsafe fn check(scope: &Scope, request: &Request) -> Result<Checked, Fault> {
    let transfer = request.describe(API)?;
    let epoch = runtime::acquire(API, request.handle)?;
    let environment = &epoch.environment;
    // SAFETY: this function's contract.
    let member = unsafe { ready(scope, request.comm)? };
    let (rank, ranks) = (member.rank(), member.size());
    let layout = &transfer.layout;
    bounds::intervals(layout, ranks)?;
    let alone = bounds::buffers(API, &transfer, rank).err();
    let balance = load_balance(environment, layout, ranks, false);
    // What follows is the same on every rank: if it fails, nobody is waiting for this one.
    if let Err(rule) = agreed_checks(environment, layout, ranks, balance) {
        return Err(alone.unwrap_or(rule).into());
    }
    let entries = vec![Entry { index: 0, transfer, balance }];
    let published = Published { entries, refused: alone.map(EntryFailure::at(0)) };
    Ok((epoch, member, published))
}

fn agreed_checks(
    environment: &Environment,
    layout: &Layout,
    ranks: usize,
    balance: LoadBalance,
) -> Result<(), BrokenRule> {
    bounds::extents(API, layout)?;
    bounds::sizes(API, layout)?;
    match environment.algorithm {
        CopyAlgorithm::Pack => {
            // The vendor's library goes on and delivers wrong or stale bytes (M2N 2.7).
            bounds::same_tensor(API, layout).map_err(BrokenRule::unchecked_by_the_vendor)?;
            let [src, dst] = [&layout.src, &layout.dst].map(|side| layout.bytes(side) as u64);
            limits::staging(API, environment, limits::staged_bytes(src, dst))?;
            limits::pack_peers(API, layout, ranks, balance, true)?;
        }
        algorithm => limits::staged_transport(API, algorithm, layout, balance)?,
    }
    bounds::addressable(API, layout)
}
