//! The update of a high-throughput handle (EP 3.5.2, 3.5.3).

use std::sync::Arc;

use nccl_ep_sys::ncclEpLayoutInfo_t;
use nccl_ext_core::raw::cudaStream_t;

use super::check::{check_duplication, check_overflow, check_tokens};
use super::counters::Counters;
use crate::ep::group::{Uses, View};
use crate::ep::ht::image::ImageFacts;
use crate::ep::ht::learned::Learned;
use crate::ep::ht::placement::PlacementRules;
use crate::ep::ht::routes::Routes;
use crate::ep::ht::state::HighThroughput;
use crate::ep::settings::{HandleSettings, Layout};
use crate::ep::tensor::TopK;
use crate::lock::lock;
use crate::refusal::Outcome;
use crate::world::{Descriptor, KEYS, SequenceId};

/// The routes of one rank, whose counts its peers read.
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
/// The table behind `topk`, the tensors of `info` and the handle's memory are valid.
pub(crate) unsafe fn update(
    group: &View<'_>,
    handle: &HandleSettings,
    state: &Arc<HighThroughput>,
    topk: TopK,
    info: Option<&ncclEpLayoutInfo_t>,
    stream: cudaStream_t,
) -> Outcome {
    let settings = group.settings;
    check_tokens(settings, topk.tokens)?;
    check_duplication(settings, handle.layout)?;
    let rules = PlacementRules::of(settings, handle);
    // SAFETY: this function's contract.
    let counters = unsafe { Counters::read(group.member, settings, &rules, info) };
    // The vendor's library checks the counters when it has communicated already: one that breaks
    // these rules alone meets the others and then fails.
    let (counters, refused) = match counters {
        Ok(counters) => (counters, Ok(())),
        Err(refusal) => (Counters::default(), Err(refusal)),
    };
    let router = Router { handle: *handle, rules, topk, counters };
    let shared = Arc::clone(state);
    group.submit_operation(stream, Update::NAME, Uses::Writes, move |group| {
        // SAFETY: the caller keeps the memory of the call until the stream has passed it.
        unsafe { router.run(group, &shared) }
    })?;
    *lock(&state.called) = Some(topk.tokens);
    refused
}

/// A rank that updates, on its stream.
struct Router {
    handle: HandleSettings,
    rules: PlacementRules,
    topk: TopK,
    counters: Counters,
}

impl Router {
    /// # Safety
    /// The table of ids, the counters and the handle's memory are valid.
    unsafe fn run(&self, group: &View<'_>, state: &HighThroughput) -> Outcome {
        let Self { handle, rules, topk, counters } = self;
        let settings = group.settings;
        topk.declare()?;
        // SAFETY: this function's contract.
        unsafe { topk.check(settings.experts, i64::MIN)? };
        let learned = &mut *lock(&state.learned);
        if let Some(memory) = state.memory {
            memory.declare_written()?;
            // SAFETY: the caller keeps the handle's memory, and the state is locked.
            unsafe { memory.forget() };
        }
        let Learned { update, routes, placement, .. } = learned;
        *update = 0;
        // SAFETY: this function's contract.
        let ids = unsafe { topk.ids() };
        routes.build(ids, handle.topk, settings.ranks, settings.local_experts);
        let descriptor = Update {
            routes: &raw const *routes,
            group: group.index,
            layout: handle.layout,
            topk: handle.topk,
            alignment: handle.alignment,
        };
        let me = group.member.rank();
        let number = group.member.collective(SequenceId::COMM, &descriptor, |peers, number| {
            // SAFETY: every rank keeps its routes unchanged during the operation.
            let routes: Vec<_> = peers.iter().map(|peer| unsafe { &*peer.routes }).collect();
            placement.place(me, &routes, rules);
            number
        })?;
        check_overflow(group.member, settings, rules, placement)?;
        *update = number;
        if let Some(memory) = state.memory {
            let facts = ImageFacts::new(settings, handle, me, topk.tokens, topk.data_type());
            // SAFETY: as above, and this function's contract.
            unsafe { memory.prepare(&facts, *topk, learned) };
        }
        // SAFETY: this function's contract.
        unsafe { counters.publish(me, rules, &learned.placement) }
    }
}
