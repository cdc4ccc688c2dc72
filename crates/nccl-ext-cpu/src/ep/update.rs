//! Updating a handle with the routing of a step (EP 3.5, 3.6).

use nccl_ep_sys::{
    ncclEpGroup_t, ncclEpHandle_t, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpLayoutInfo_t,
    ncclEpTensor_t,
};
use nccl_ext_core::Error;
use nccl_ext_core::raw::ncclResult_t;

use super::counters;
use super::group::View;
use super::handle::{self, Layout, Ready};
use super::import;
use super::low_latency;
use super::routing::{Placement, Routes, Rules};
use super::settings::{Algorithm, EmMode, Settings};
use super::structs;
use super::tensor::{Tensor, WindowOnly};
use super::topk::TopK;
use crate::entry::Scope;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{COMM, Descriptor, KEYS, Member};

/// What a high-throughput handle learns with each update.
#[derive(Default)]
pub(super) struct HighThroughput {
    /// The number of the update on the communicator's line, the same on all ranks; 0 before the
    /// first and after one that failed.
    pub(super) update: u64,
    pub(super) routes: Routes,
    pub(super) placement: Placement,
    /// Room for the image that goes to the caller's handle memory.
    pub(super) image: Vec<u64>,
}

struct Update {
    routes: *const Routes,
    group: u64,
    layout: Layout,
    topk: usize,
    alignment: usize,
}

// SAFETY: the peers only read the routes, which nobody changes during the operation.
unsafe impl Descriptor for Update {
    const NAME: &'static str = "ncclEpUpdateHandle";
    const KEY: [&'static str; KEYS] = ["group", "layout", "num_topk", "alignment", "", ""];
    fn key(&self) -> [u64; KEYS] {
        [self.group, self.layout as u64, self.topk as u64, self.alignment as u64, 0, 0]
    }
}

/// # Safety
/// The C contract of `ncclEpUpdateHandle`.
pub(super) unsafe fn update(
    scope: &Scope,
    handle: ncclEpHandle_t,
    topk_idx: *const ncclEpTensor_t,
    layout_info: *const ncclEpLayoutInfo_t,
) -> Outcome {
    let assert = FailureClass::Assert;
    // SAFETY: this function's contract.
    let handle = unsafe { handle::live(handle, assert)? };
    // SAFETY: this function's contract.
    let info = unsafe { structs::optional(layout_info, "layout_info")? };
    // SAFETY: this function's contract.
    let tensor = unsafe { TopK::tensor(topk_idx)? };
    let (group, ready) = handle.view()?;
    scope.enter(group.member);
    match group.settings.algorithm {
        Algorithm::LowLatency => {
            let topk = TopK::of(&tensor, ready.topk, group.member, WindowOnly::Undefined)?;
            require(info.is_none(), || {
                let rule = "low latency learns the layout at dispatch";
                Refusal::argument(assert, "layout_info", rule, "NULL", "a structure")
            })?;
            // SAFETY: this function's contract: the table stays until the step's last combine.
            unsafe { low_latency::update(&group, ready, topk) }
        }
        Algorithm::HighThroughput => {
            let topk = TopK::of(&tensor, ready.topk, group.member, WindowOnly::Resolved)?;
            // SAFETY: this function's contract: the table stays until this call is done.
            unsafe { update_high(&group, ready, topk, info.as_ref()) }
        }
    }
}

/// # Safety
/// The table behind `topk` and the tensors of `info` are valid.
unsafe fn update_high(
    group: &View<'_>,
    ready: &Ready,
    topk: TopK,
    info: Option<&ncclEpLayoutInfo_t>,
) -> Outcome {
    let settings = group.settings;
    let most = settings.max_tokens;
    require(topk.tokens <= most, || {
        let rule = "a rank dispatches at most max_dispatch_tokens_per_rank tokens";
        let expected = format_args!("at most {most}").to_string();
        Refusal::argument(FailureClass::Assert, "topk_idx", rule, expected, topk.tokens)
    })?;
    check_dup_limits(settings, ready.layout)?;
    // SAFETY: this function's contract.
    unsafe { topk.check(settings.experts, i64::MIN)? };
    let rules = rules(settings, ready);
    let state = &mut *handle::lock(&ready.high);
    // SAFETY: the caller keeps the handle's memory, and the state is locked.
    unsafe { import::forget(ready) };
    let HighThroughput { update, routes, placement, .. } = state;
    *update = 0;
    // SAFETY: this function's contract.
    let ids = unsafe { topk.ids() };
    routes.build(ids, ready.topk, settings.ranks, settings.local_experts);
    let descriptor = Update {
        routes: &raw const *routes,
        group: group.index,
        layout: ready.layout,
        topk: ready.topk,
        alignment: ready.alignment,
    };
    let me = group.member.rank();
    let number = group.member.collective(COMM, &descriptor, |peers, number| {
        // SAFETY: every rank keeps its routes unchanged during the operation.
        let routes: Vec<_> = peers.iter().map(|peer| unsafe { &*peer.routes }).collect();
        placement.place(me, &routes, &rules);
        number
    })?;
    check_overflow(group.member, settings, &rules, placement)?;
    *update = number;
    // SAFETY: as above, and this function's contract.
    unsafe { import::prepare(group, ready, topk, state) };
    let placement = &state.placement;
    // The vendor's library checks the counters when it has communicated already.
    // SAFETY: this function's contract.
    unsafe { counters::publish(group.member, settings, &rules, placement, info) }
}

/// EP 3.5.2, 8.
fn check_dup_limits(settings: &Settings, layout: Layout) -> Outcome {
    if settings.em_mode == EmMode::LocalPermute || layout != Layout::ExpertMajor {
        return Ok(());
    }
    let local = settings.local_experts;
    let assert = FailureClass::Assert;
    require(local.is_power_of_two(), || {
        let rule = "the expert-major duplication modes need a power of two of experts on a rank";
        Refusal::argument(assert, "num_experts", rule, "a power of two a rank", local)
    })?;
    require(settings.ranks <= 128, || {
        let rule = "the expert-major duplication modes reach at most 128 ranks";
        Refusal::argument(assert, "comm", rule, "at most 128 ranks", settings.ranks)
    })
}

pub(super) fn rules(settings: &Settings, ready: &Ready) -> Rules {
    let expert_major = ready.layout == Layout::ExpertMajor;
    let permute = expert_major && settings.em_mode == EmMode::LocalPermute;
    Rules {
        expert_major,
        permute,
        alignment: ready.alignment as u64,
        budget: settings.max_recv,
        drop: settings.drop,
    }
}

/// Without DROP every rank's total must fit its budget (EP 3.5.3, 4.12). Every rank knows all
/// totals, so nobody goes on to wait for a rank that is overrun.
fn check_overflow(
    member: &Member,
    settings: &Settings,
    rules: &Rules,
    placement: &Placement,
) -> Outcome {
    if rules.drop {
        return Ok(());
    }
    // Slots are 32 bits wide; a larger total could not be stored anyway.
    let limit = u64::from(u32::MAX) - 1;
    let padding = (settings.local_experts as u64).saturating_mul(rules.alignment.max(1) - 1);
    let zones_budget = match settings.eager && rules.permute {
        true => rules.budget.saturating_add(padding),
        false => rules.budget,
    };
    let flat_counts = !rules.expert_major || rules.permute;
    let overrun = (0..settings.ranks).find_map(|rank| {
        let (flat, zones) = (placement.flat_totals[rank], placement.zone_totals[rank]);
        if flat_counts && flat > rules.budget.min(limit) {
            return Some((rank, flat, rules.budget));
        }
        let over = rules.expert_major && zones > zones_budget.min(limit);
        over.then_some((rank, zones, zones_budget))
    });
    let Some((rank, total, budget)) = overrun else { return Ok(()) };
    let refusal = Refusal::usage(
        FailureClass::Trap,
        "max_recv_tokens_per_rank",
        "a rank receives no more rows than its budget, unless the policy is DROP",
        format_args!("at most {budget} rows on rank {rank}"),
        total,
    );
    let error = refusal.to_error("ncclEpUpdateHandle");
    if member.rank() == rank {
        member.fail(&error);
        return Err(refusal);
    }
    let error = Refusal::error(Error::PeerFailed { rank, error: error.into() });
    // In the duplication modes every rank checks every destination and traps as well.
    Err(if flat_counts { error } else { error.with_class(FailureClass::Trap) })
}

/// # Safety
/// The C contract of `ncclEpCreateHandle`.
pub(super) unsafe fn create(
    scope: &Scope,
    out: *mut ncclEpHandle_t,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    topk_idx: *const ncclEpTensor_t,
    layout_info: *const ncclEpLayoutInfo_t,
    config: *const ncclEpHandleConfig_t,
) -> Outcome {
    // SAFETY: this function's contract.
    let tensor = unsafe { Tensor::required(topk_idx, "topk_idx")? };
    require(!out.is_null(), || Refusal::null(FailureClass::Assert, "handle"))?;
    // SAFETY: this function's contract.
    unsafe { structs::optional(layout_info, "layout_info")? };
    // The vendor's library reads the second extent before it looks whether there is one.
    tensor.require_ndim(FailureClass::UndefinedBehaviour, 2)?;
    let topk = i32::try_from(tensor.extent(1)).unwrap_or(i32::MAX);
    // SAFETY: this function's contract.
    unsafe {
        handle::init(scope, out, group, layout, config, topk, core::ptr::null())?;
        update(scope, out.read(), topk_idx, layout_info)
    }
}

/// What a call needs that comes before any successful update.
pub(super) fn not_updated(class: FailureClass, code: ncclResult_t) -> Refusal {
    let rule = "a handle is updated before its first operation";
    Refusal::usage(class, "handle", rule, "ncclEpUpdateHandle before", "none").with_code(code)
}
