//! Low-latency dispatch (EP 4.1 to 4.3): every rank pulls its rows from what its peers offer, in
//! the order of source rank and token.

use nccl_ep_sys::ncclEpTensor_t;
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use super::dispatch::{Arguments, check_tokens, global_ids};
use super::geometry;
use super::group::{Settings, View};
use super::handle::{self, Layout, Ready, compile_failure};
use super::routing::NOWHERE;
use super::tensor::{Tensor, WindowOnly};
use super::topk::TopK;
use super::update::not_updated;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Descriptor, KEYS};

/// What a low-latency handle learns with each step.
#[derive(Default)]
pub(super) struct LowLatency {
    pub(super) topk: Option<TopK>,
    pub(super) sent: Sent,
}

/// What this rank sent in its last dispatch, and where that went.
#[derive(Default)]
pub(super) struct Sent {
    /// The dispatch's number on the group's line, the same on all ranks; 0 for none.
    pub(super) operation: u64,
    pub(super) entries: Entries,
    pub(super) slots: Slots,
}

/// The entries of a step's top-k table, and how many there are of each kind.
#[derive(Default)]
pub(super) struct Entries {
    /// [`NOWHERE`] for no expert.
    pub(super) experts: Vec<u32>,
    per_expert: Vec<u32>,
}

impl Entries {
    /// Every id is below the number of experts.
    fn build(&mut self, ids: impl Iterator<Item = i64>, experts: usize) {
        self.experts.clear();
        self.experts.extend(ids.map(|id| u32::try_from(id).unwrap_or(NOWHERE)));
        zeros(&mut self.per_expert, experts);
        for &expert in &self.experts {
            if let Some(count) = self.per_expert.get_mut(expert as usize) {
                *count += 1;
            }
        }
    }
}

/// Each entry's slot on the rank that receives it: among its expert's rows (expert-major), or, at
/// the first entry of a token for a rank, among this rank's rows there (rank-major). [`NOWHERE`]
/// for entries without a row of their own.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) of_entry: Vec<u32>,
    /// Next slot of each expert or rank, while slots are handed out.
    next: Vec<u32>,
}

impl Slots {
    fn place_by_expert(&mut self, entries: &Entries, peers: &[&Offer], me: usize) {
        zeros(&mut self.next, entries.per_expert.len());
        for peer in &peers[..me] {
            let counts = peer.counts(peer.per_expert, self.next.len());
            self.next.iter_mut().zip(counts).for_each(|(next, count)| *next += count);
        }
        self.of_entry.clear();
        for &expert in &entries.experts {
            let slot = self.next.get_mut(expert as usize).map(take);
            self.of_entry.push(slot.unwrap_or(NOWHERE));
        }
    }

    fn place_by_rank(&mut self, entries: &Entries, topk: usize, local_experts: usize) {
        zeros(&mut self.next, entries.per_expert.len() / local_experts);
        self.of_entry.clear();
        for token in entries.experts.chunks_exact(topk) {
            for k in 0..topk {
                let rank = first_of_rank(token, k, local_experts);
                let slot = rank.map(|rank| take(&mut self.next[rank]));
                self.of_entry.push(slot.unwrap_or(NOWHERE));
            }
        }
    }
}

fn take(next: &mut u32) -> u32 {
    *next += 1;
    *next - 1
}

fn zeros(counts: &mut Vec<u32>, len: usize) {
    counts.clear();
    counts.resize(len, 0);
}

/// The rank of a token's `k`-th expert, unless an earlier one has the same or there is none.
fn first_of_rank(token: &[u32], k: usize, local_experts: usize) -> Option<usize> {
    let rank = |expert: u32| (expert != NOWHERE).then(|| expert as usize / local_experts);
    let own = rank(token[k])?;
    token[..k].iter().all(|&other| rank(other) != Some(own)).then_some(own)
}

/// Remembers the caller's top-k table; it is read by dispatch and combine.
///
/// # Safety
/// The table stays valid and unchanged until the step's last combine.
pub(super) unsafe fn update(group: &View<'_>, ready: &Ready, topk: TopK) -> Outcome {
    // SAFETY: this function's contract.
    unsafe { topk.check(group.settings.experts, lowest(group.settings))? };
    let state = &mut *handle::lock(&ready.low);
    // Dispatch allocates nothing.
    let entries = topk.tokens * ready.topk;
    let Sent { entries: Entries { experts, .. }, slots, .. } = &mut state.sent;
    experts.reserve(entries.saturating_sub(experts.len()));
    slots.of_entry.reserve(entries.saturating_sub(slots.of_entry.len()));
    state.topk = Some(topk);
    Ok(())
}

/// Ids travel as 16 bits; below this one they alias experts (EP 4.16).
fn lowest(settings: &Settings) -> i64 {
    settings.experts as i64 - 65536
}

/// What a rank offers to its peers.
pub(super) struct Offer {
    key: [u64; KEYS],
    experts: *const u32,
    tokens: usize,
    per_expert: *const u32,
    rows: *const u8,
    weights: *const f32,
}

// SAFETY: the peers only read, and nobody changes what the pointers name during the operation.
unsafe impl Descriptor for Offer {
    const NAME: &'static str = "ncclEpDispatch";
    const KEY: [&'static str; KEYS] = ["group", "layout", "num_topk", "hidden", "datatype", ""];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

impl Offer {
    fn counts(&self, counts: *const u32, len: usize) -> &[u32] {
        // SAFETY: the tables have an entry for each expert or rank, and nobody changes them while
        // the offer is shown.
        unsafe { core::slice::from_raw_parts(counts, len) }
    }

    fn experts(&self, topk: usize) -> &[u32] {
        // SAFETY: the table has `topk` entries a token, and nobody changes it while the offer is
        // shown.
        unsafe { core::slice::from_raw_parts(self.experts, self.tokens * topk) }
    }
}

/// Where this rank receives.
#[derive(Clone, Copy)]
enum Outputs {
    ExpertMajor { rows: *mut u8, counters: *mut i32 },
    RankMajor { rows: *mut u8, weights: *mut f32, ids: *mut i32, counters: *mut i32, global: bool },
}

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(super) unsafe fn dispatch(group: &View<'_>, ready: &Ready, arguments: &Arguments) -> Outcome {
    let settings = group.settings;
    let state = &mut *handle::lock(&ready.low);
    let tokens = state.topk.map_or(arguments.tokens.extent(0), |topk| topk.tokens);
    // SAFETY: this function's contract.
    let (rows, weights, outputs) = unsafe { check(group, ready, arguments, tokens)? };
    check_geometry(settings, arguments)?;
    let topk = state
        .topk
        .ok_or_else(|| not_updated(FailureClass::Return, ncclResult_t::ncclInvalidArgument))?;
    require(!arguments.send_only, || {
        Refusal::unsupported("send_only", ncclResult_t::ncclInvalidUsage)
    })?;
    let Sent { operation, entries, slots } = &mut state.sent;
    *operation = 0;
    // SAFETY: the caller keeps the table of the last update until the step's last combine. It may
    // have been written since, so it is checked again.
    unsafe {
        topk.check(settings.experts, lowest(settings))?;
        entries.build(topk.ids(), settings.experts);
    }
    let entries = &*entries;
    let offer = Offer {
        key: [
            group.index,
            ready.layout as u64,
            ready.topk as u64,
            arguments.tokens.extent(1) as u64,
            arguments.data_type as u64,
            0,
        ],
        experts: entries.experts.as_ptr(),
        tokens,
        per_expert: entries.per_expert.as_ptr(),
        rows,
        weights,
    };
    let bytes = arguments.row_bytes()?;
    let me = group.member.rank();
    *operation = group.member.collective(group.line(), &offer, |peers, number| {
        check_capacity(settings, ready.layout, peers)?;
        match ready.layout {
            Layout::ExpertMajor => slots.place_by_expert(entries, peers, me),
            _ => slots.place_by_rank(entries, ready.topk, settings.local_experts),
        }
        let pull = Pull { settings, topk: ready.topk, me, bytes, peers };
        // SAFETY: the outputs have the full shapes of the layout, and nobody receives more.
        unsafe {
            match outputs {
                Outputs::ExpertMajor { rows, counters } => pull.expert_major(rows, counters),
                Outputs::RankMajor { rows, weights, ids, counters, global } => {
                    pull.rank_major(rows, weights, ids, counters, global);
                }
            }
        }
        Ok(number)
    })??;
    Ok(())
}

/// Shapes and presence (EP 4.2, 4.3).
///
/// # Safety
/// As [`dispatch`].
unsafe fn check(
    group: &View<'_>,
    ready: &Ready,
    arguments: &Arguments,
    tokens: usize,
) -> Outcome<(*const u8, *const f32, Outputs)> {
    let (settings, member) = (group.settings, group.member);
    let assert = FailureClass::Assert;
    check_tokens(arguments, tokens, settings.max_tokens, settings.max_token_bytes)?;
    let hidden = arguments.tokens.extent(1);
    check_hidden(hidden, 16)?;
    let Settings { ranks, max_tokens, local_experts, .. } = *settings;
    let out = &arguments.out_tokens;
    let (inputs, outputs) = (&arguments.inputs, &arguments.outputs);
    // SAFETY: this function's contract.
    let optional = |given, name| unsafe { Tensor::optional(given, name) };
    let forbidden = |given: *const ncclEpTensor_t, name, rule| {
        let refusal = || Refusal::argument(assert, name, rule, "NULL", "a tensor");
        require(given.is_null(), refusal)
    };
    let needed = |given, name| optional(given, name)?.ok_or_else(|| Refusal::null(assert, name));
    let undefined = WindowOnly::Undefined;
    let rows = arguments.tokens.data(member, undefined)?;
    if ready.layout == Layout::ExpertMajor {
        let rule = "expert-major dispatch carries no weights and no indices";
        forbidden(inputs.topk_weights, "inputs.topk_weights", rule)?;
        out.require_shape(assert, &[local_experts, ranks * max_tokens, hidden])?;
        forbidden(outputs.topk_weights, "outputs.topk_weights", rule)?;
        forbidden(outputs.topk_idx, "outputs.topk_idx", rule)?;
        let info = arguments.info.as_ref().ok_or_else(|| Refusal::null(assert, "layout_info"))?;
        let counters = needed(info.expert_counters, "layout_info.expert_counters")?;
        counters.require_shape(assert, &[local_experts])?;
        counters.require_type(assert, &[DataType::Int32])?;
        let rule = "expert-major dispatch counts by expert";
        forbidden(info.src_rank_counters, "layout_info.src_rank_counters", rule)?;
        let outputs = Outputs::ExpertMajor {
            rows: out.data(member, WindowOnly::Resolved)?,
            counters: counters.data(member, undefined)?.cast(),
        };
        check_zero_copy(settings, ready.layout, out)?;
        return Ok((rows, core::ptr::null(), outputs));
    }
    let weights = needed(inputs.topk_weights, "inputs.topk_weights")?;
    weights.require_shape(assert, &[tokens, ready.topk])?;
    weights.require_type(assert, &[DataType::Float32])?;
    let shape = [ranks, max_tokens, ready.topk];
    out.require_shape(assert, &[ranks, max_tokens, hidden])?;
    let out_weights = needed(outputs.topk_weights, "outputs.topk_weights")?;
    out_weights.require_shape(assert, &shape)?;
    out_weights.require_type(assert, &[DataType::Float32])?;
    let ids = needed(outputs.topk_idx, "outputs.topk_idx")?;
    ids.require_shape(assert, &shape)?;
    ids.require_type(assert, &[DataType::Int32])?;
    let mut counters = core::ptr::null_mut();
    if let Some(info) = &arguments.info {
        let rule = "rank-major dispatch counts by source rank";
        forbidden(info.expert_counters, "layout_info.expert_counters", rule)?;
        let name = "layout_info.src_rank_counters";
        if let Some(tensor) = optional(info.src_rank_counters, name)? {
            tensor.require_shape(assert, &[ranks])?;
            tensor.require_type(assert, &[DataType::Int32])?;
            counters = tensor.data(member, undefined)?.cast();
        }
    }
    let outputs = Outputs::RankMajor {
        rows: out.data(member, WindowOnly::Resolved)?,
        weights: out_weights.data(member, undefined)?.cast(),
        ids: ids.data(member, undefined)?.cast(),
        counters,
        global: global_ids(arguments.info.as_ref())?,
    };
    check_zero_copy(settings, ready.layout, out)?;
    Ok((rows, weights.data(member, undefined)?.cast(), outputs))
}

/// Elements of a row come in units.
pub(super) fn check_hidden(hidden: usize, unit: usize) -> Outcome {
    require(hidden.is_multiple_of(unit), || {
        let rule = "low latency moves rows in units of elements";
        let expected = format_args!("a multiple of {unit} elements").to_string();
        Refusal::argument(FailureClass::Assert, "inputs.tokens", rule, expected, hidden)
    })
}

/// EP 4.14.
fn check_zero_copy(settings: &Settings, layout: Layout, out: &Tensor) -> Outcome {
    let ret = FailureClass::Return;
    if !settings.zero_copy_on {
        return Ok(());
    }
    require(layout == Layout::RankMajor, || {
        let rule = "with zero_copy ON low latency dispatches rank-major only";
        Refusal::argument(ret, "layout", rule, "RANK_MAJOR", "EXPERT_MAJOR")
    })?;
    require(out.has_window(), || {
        let rule = "with zero_copy ON the output is a window";
        Refusal::argument(ret, "outputs.tokens", rule, "win_hdl", "none")
    })
}

/// Launch shape and compile-time rules (EP 4.1).
fn check_geometry(settings: &Settings, arguments: &Arguments) -> Outcome {
    check_blocks(settings)?;
    let unit = 32 * 16 / arguments.data_type.size();
    let hidden = arguments.tokens.extent(1);
    require(hidden.is_multiple_of(unit), || {
        let expected = format_args!("a multiple of {unit} elements").to_string();
        let rule = "the dispatch kernel compiles for whole warps of 16-byte loads";
        compile_failure("inputs.tokens", rule, expected, hidden)
    })
}

/// A low-latency kernel runs on two blocks at least.
pub(super) fn check_blocks(settings: &Settings) -> Outcome {
    let groups = geometry::ll_groups(settings.experts, settings.comm_sms);
    let blocks = settings.experts.div_ceil(groups.max(1));
    require(blocks >= 2, || {
        let rule = "low latency runs on two blocks at least";
        let expected = "2 experts and 2 SMs at least";
        let found = format_args!("{} experts, {} SMs", settings.experts, settings.comm_sms);
        let found = found.to_string();
        Refusal::usage(FailureClass::Trap, "num_experts", rule, expected, found)
    })
}

/// Duplicates in rows can exceed an expert's rows; the vendor's kernel then writes past them. All
/// ranks see the same counts and refuse together.
fn check_capacity(settings: &Settings, layout: Layout, peers: &[&Offer]) -> Outcome {
    if layout != Layout::ExpertMajor {
        return Ok(());
    }
    let room = settings.ranks * settings.max_tokens;
    for expert in 0..settings.experts {
        let counts =
            |peer: &&Offer| peer.counts(peer.per_expert, settings.experts)[expert] as usize;
        let count: usize = peers.iter().map(counts).sum();
        require(count <= room, || {
            let rule = "duplicates in a row do not overfill an expert's rows";
            let expected = format_args!("at most {room} copies for an expert").to_string();
            let found = format_args!("{count} for expert {expert}").to_string();
            let class = FailureClass::UndefinedBehaviour;
            Refusal::argument(class, "topk_idx", rule, expected, found)
        })?;
    }
    Ok(())
}

/// A receiver at work.
struct Pull<'a> {
    settings: &'a Settings,
    topk: usize,
    me: usize,
    bytes: usize,
    peers: &'a [&'a Offer],
}

impl Pull<'_> {
    /// This rank's number of an expert, if it has it.
    fn local(&self, expert: u32) -> Option<usize> {
        let local = self.settings.local_experts;
        let own = (expert as usize).checked_sub(self.me * local)?;
        (own < local).then_some(own)
    }

    /// # Safety
    /// The outputs have the layout's shapes and `check_capacity` passed.
    unsafe fn expert_major(&self, rows: *mut u8, counters: *mut i32) {
        let Settings { local_experts, ranks, max_tokens, .. } = *self.settings;
        // The counters themselves say how many rows an expert has so far.
        // SAFETY: this function's contract.
        let counters = unsafe {
            counters.write_bytes(0, local_experts);
            core::slice::from_raw_parts_mut(counters, local_experts)
        };
        for peer in self.peers {
            for (i, &expert) in peer.experts(self.topk).iter().enumerate() {
                let Some(own) = self.local(expert) else { continue };
                let slot = own * ranks * max_tokens + counters[own] as usize;
                // SAFETY: this function's contract.
                unsafe { self.copy_row(peer, i / self.topk, rows, slot) };
                counters[own] += 1;
            }
        }
    }

    /// # Safety
    /// The outputs have the layout's shapes; `counters` may be NULL.
    unsafe fn rank_major(
        &self,
        rows: *mut u8,
        weights: *mut f32,
        ids: *mut i32,
        counters: *mut i32,
        global: bool,
    ) {
        let (topk, most) = (self.topk, self.settings.max_tokens);
        for (source, peer) in self.peers.iter().enumerate() {
            let mut slot = source * most;
            for (t, token) in peer.experts(topk).chunks_exact(topk).enumerate() {
                if token.iter().all(|&expert| self.local(expert).is_none()) {
                    continue;
                }
                // SAFETY: this function's contract; a source has at most `max_tokens` tokens.
                unsafe {
                    self.copy_row(peer, t, rows, slot);
                    let from = peer.weights.add(t * topk);
                    core::ptr::copy_nonoverlapping(from, weights.add(slot * topk), topk);
                    for (k, &expert) in token.iter().enumerate() {
                        let id = match self.local(expert) {
                            Some(_) if global => expert as i32,
                            Some(own) => own as i32,
                            None => -1,
                        };
                        ids.add(slot * topk + k).write(id);
                    }
                }
                slot += 1;
            }
            for i in slot * topk..(source + 1) * most * topk {
                // SAFETY: as above: the whole index tensor is written on every dispatch.
                unsafe { ids.add(i).write(-1) };
            }
            if !counters.is_null() {
                // SAFETY: as above.
                unsafe { counters.add(source).write((slot - source * most) as i32) };
            }
        }
    }

    /// # Safety
    /// The slot exists.
    unsafe fn copy_row(&self, peer: &Offer, token: usize, rows: *mut u8, slot: usize) {
        // SAFETY: this function's contract; the token is one of the peer's.
        unsafe {
            let from = peer.rows.add(token * self.bytes);
            core::ptr::copy_nonoverlapping(from, rows.add(slot * self.bytes), self.bytes);
        }
    }
}
