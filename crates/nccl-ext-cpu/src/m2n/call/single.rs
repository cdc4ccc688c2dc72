//! One reshard on its own (M2N 2.1).

use std::sync::Arc;

use nccl_ext_core::raw::ncclComm_t;
use nccl_m2n_sys::ncclM2nHandle_t;

use super::runtime;
use crate::entry::Scope;
use crate::m2n::check::{bounds, limits};
use crate::m2n::descriptor::{Layout, RawTensor, Transfer, describe};
use crate::m2n::environment::{CopyAlgorithm, Environment, LoadBalance};
use crate::m2n::fault::{BrokenRule, Fault};
use crate::m2n::meeting::{exchange, ready};
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
pub(crate) unsafe fn reshard(scope: &Scope, request: &Request) -> Result<(), Fault> {
    // SAFETY: this function's contract.
    let (member, published) = unsafe { check(scope, request)? };
    // SAFETY: this function's contract: an active rank's buffer holds its tile.
    unsafe { exchange(&member, published) }.map_err(|stop| stop.why)
}

/// What this rank finds on its own, and what it has to show to the others.
///
/// # Safety
/// As [`reshard`].
unsafe fn check(scope: &Scope, request: &Request) -> Result<(Arc<Member>, Published), Fault> {
    let transfer = request.describe(API)?;
    let environment = runtime::acquire(API, request.handle)?;
    // SAFETY: this function's contract.
    let member = unsafe { ready(scope, request.comm)? };
    let (rank, ranks) = (member.rank(), member.size());
    let layout = &transfer.layout;
    bounds::intervals(layout, ranks)?;
    let alone = bounds::buffers(API, &transfer, rank).err();
    let balance = load_balance(&environment, layout, ranks, false);
    // What follows is the same on every rank: if it fails, nobody is waiting for this one.
    if let Err(rule) = agreed_checks(&environment, layout, ranks, balance) {
        return Err(alone.unwrap_or(rule).into());
    }
    let entries = vec![Entry { index: 0, transfer, balance }];
    Ok((member, Published { entries, refused: alone.map(EntryFailure::at(0)) }))
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
