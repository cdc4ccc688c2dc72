//! One reshard on its own (M2N 2.1).

use nccl_ext_core::raw::ncclComm_t;
use nccl_m2n_sys::ncclM2nHandle_t;

use super::balance::{self, Balance};
use super::describe::describe;
use super::environment::{CopyAlgorithm, Environment};
use super::exchange::{Entry, Published, Stop, exchange};
use super::fault::{Fault, Rule};
use super::raw::RawTensor;
use super::transfer::{Layout, Transfer};
use super::{bounds, limits, runtime, team};
use crate::entry::Scope;

/// The arguments of a reshard, copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) handle: ncclM2nHandle_t,
    pub(super) comm: ncclComm_t,
    pub(super) src: Option<RawTensor>,
    pub(super) dst: Option<RawTensor>,
}

impl Request {
    /// Checks 1 to 25.
    pub(super) fn describe(&self, api: &str) -> Result<Transfer, Rule> {
        describe(api, !self.comm.is_null(), self.src.as_ref(), self.dst.as_ref())
    }
}

/// Also what a single entry of a group goes through, with this name in its texts.
pub(super) const API: &str = "ncclReshard";

/// # Safety
/// The C contract of `ncclReshard`.
pub(super) unsafe fn reshard(scope: &Scope, request: &Request) -> Result<(), Fault> {
    let transfer = request.describe(API)?;
    let environment = runtime::acquire(API, request.handle)?;
    // SAFETY: this function's contract.
    let member = unsafe { team::ready(scope, request.comm)? };
    let (rank, ranks) = (member.rank(), member.size());
    let layout = &transfer.layout;
    bounds::intervals(layout, ranks)?;
    let alone = bounds::buffers(API, &transfer, rank).err();
    let mode = balance::mode(&environment, layout, ranks, false);
    // What follows is the same on every rank: if it fails, nobody is waiting for this one.
    if let Err(rule) = agreed_checks(&environment, layout, ranks, mode) {
        return Err(alone.unwrap_or(rule).into());
    }
    let entries = vec![Entry { index: 0, transfer, mode }];
    let published = Published { entries, refused: alone.map(Stop::at(0)) };
    // SAFETY: this function's contract: an active rank's buffer holds its tile.
    unsafe { exchange(&member, published) }.map_err(|stop| stop.why)
}

fn agreed_checks(
    environment: &Environment,
    layout: &Layout,
    ranks: usize,
    mode: Balance,
) -> Result<(), Rule> {
    bounds::extents(API, layout)?;
    bounds::sizes(API, layout)?;
    match environment.algorithm {
        CopyAlgorithm::Pack => {
            // The vendor's library goes on and delivers wrong or stale bytes (M2N 2.7).
            bounds::same_tensor(API, layout).map_err(Rule::unchecked_there)?;
            let [src, dst] = [&layout.src, &layout.dst].map(|side| layout.bytes(side) as u64);
            limits::staging(API, environment, limits::staged_bytes(src, dst))?;
            limits::pack_peers(API, layout, ranks, mode, true)?;
        }
        algorithm => limits::staged_transport(API, algorithm, layout, mode)?,
    }
    bounds::addressable(API, layout)
}
