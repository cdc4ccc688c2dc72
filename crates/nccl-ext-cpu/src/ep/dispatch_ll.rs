//! Low-latency dispatch (EP 4.1 to 4.3): every rank pulls its rows from what its peers offer.

use std::sync::Arc;

use nccl_ep_sys::ncclEpTensor_t;
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;

use super::dispatch::{Arguments, check_tokens, global_ids};
use super::geometry;
use super::group::{Settings, View};
use super::handle::{self, Layout, Ready, compile_failure};
use super::low_latency::{Pending, Sent, lowest_id, require_nothing_staged, zeros};
use super::tensor::{Tensor, WindowOnly};
use super::update::not_updated;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Descriptor, KEYS};

/// What a rank offers to its peers.
pub(super) struct Offer {
    pub(super) key: [u64; KEYS],
    pub(super) tokens: usize,
    pub(super) experts: *const u32,
    pub(super) per_expert: *const u32,
    pub(super) rows: *const u8,
    /// NULL for expert-major.
    pub(super) weights: *const f32,
}

// SAFETY: the peers only read, and nobody changes what the pointers name during the operation.
unsafe impl Descriptor for Offer {
    const NAME: &'static str = "ncclEpDispatch";
    const KEY: [&'static str; KEYS] = ["group", "layout", "num_topk", "hidden", "datatype", ""];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

// SAFETY: an offer is made to be read by other threads; its makers say how long.
unsafe impl Send for Offer {}
// SAFETY: as above.
unsafe impl Sync for Offer {}

impl Offer {
    /// Entries for each expert.
    pub(super) fn per_expert(&self, experts: usize) -> &[u32] {
        // SAFETY: the table has an entry for each expert, and nobody changes it while the offer
        // is shown.
        unsafe { core::slice::from_raw_parts(self.per_expert, experts) }
    }

    /// The expert of each entry of the top-k table.
    pub(super) fn experts(&self, topk: usize) -> &[u32] {
        // SAFETY: the table has `topk` entries a token, and nobody changes it while the offer is
        // shown.
        unsafe { core::slice::from_raw_parts(self.experts, self.tokens * topk) }
    }
}

/// Where a rank receives, and how.
#[derive(Clone, Copy)]
pub(super) struct Receive {
    topk: usize,
    bytes: usize,
    outputs: Outputs,
}

#[derive(Clone, Copy)]
enum Outputs {
    ExpertMajor { rows: *mut u8, counters: *mut i32 },
    RankMajor { rows: *mut u8, weights: *mut f32, ids: *mut i32, counters: *mut i32, global: bool },
}

// SAFETY: the caller keeps the outputs valid until the operation is complete, from whatever
// thread that is called.
unsafe impl Send for Receive {}

/// # Safety
/// The C contract of `ncclEpDispatch`, for the tensors of `arguments`.
pub(super) unsafe fn dispatch(group: &View<'_>, ready: &Ready, arguments: &Arguments) -> Outcome {
    let settings = group.settings;
    let state = &mut *handle::lock(&ready.low);
    let tokens = state.topk.map_or(arguments.tokens.extent(0), |topk| topk.tokens);
    // SAFETY: this function's contract.
    let (rows, weights, outputs) = unsafe { check(group, ready, arguments, tokens)? };
    let staged = handle::lock(group.staging).pending;
    require_nothing_staged(staged)?;
    check_geometry(settings, arguments)?;
    let topk = state
        .topk
        .ok_or_else(|| not_updated(FailureClass::Return, ncclResult_t::ncclInvalidArgument))?;
    let entries = &mut state.sent.entries;
    state.sent.operation = 0;
    // SAFETY: the caller keeps the table of the last update until the step's last combine. It may
    // have been written since, so it is checked again.
    unsafe {
        topk.check(settings.experts, lowest_id(settings))?;
        entries.build(topk.ids(), settings.experts);
    }
    let offer = Offer {
        key: [
            group.index,
            ready.layout as u64,
            ready.topk as u64,
            arguments.tokens.extent(1) as u64,
            arguments.data_type as u64,
            0,
        ],
        tokens,
        experts: entries.experts.as_ptr(),
        per_expert: entries.per_expert.as_ptr(),
        rows,
        weights,
    };
    let receive = Receive { topk: ready.topk, bytes: arguments.row_bytes()?, outputs };
    let stage = |operation| {
        let mut staging = handle::lock(group.staging);
        let bank = staging.bank(operation);
        // SAFETY: the offer was made of the caller's tensors and this handle's tables.
        unsafe { bank.stage_offer(&offer, receive.bytes, receive.topk, settings.experts) }
    };
    if arguments.send_only {
        let copy = stage(group.member.next_operation(group.line())?);
        // SAFETY: the group's bank keeps the copy until the second operation from here, and the
        // group outlives its line.
        let operation = unsafe { group.member.stage(group.line(), &*copy)? };
        state.pending = Some(Pending::Dispatch { operation, receive });
        handle::lock(group.staging).pending = true;
        return Ok(());
    }
    let sent = &mut state.sent;
    let work = |peers: &[&Offer], operation| {
        // SAFETY: `check` found the outputs to have the layout's shapes.
        unsafe { receive.pull(group, sent, peers, operation) }
    };
    let stage = |operation| Some(Arc::as_ptr(&stage(operation)));
    group.member.collective_among_staged(group.line(), &offer, work, stage)?
}

/// The receive half of a staged dispatch.
///
/// # Safety
/// The outputs of the staged call are still valid.
pub(super) unsafe fn complete(
    group: &View<'_>,
    sent: &mut Sent,
    operation: u64,
    receive: &Receive,
) -> Outcome {
    group.member.complete(group.line(), operation, |peers: &[&Offer]| {
        // SAFETY: this function's contract.
        unsafe { receive.pull(group, sent, peers, operation) }
    })?
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
    // Without tokens the pointer may be NULL, which says expert-major; nobody follows it then.
    let weights = weights.data(member, undefined)?.cast::<f32>();
    let weights = if tokens == 0 { core::ptr::dangling() } else { weights.cast_const() };
    Ok((rows, weights, outputs))
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
fn check_capacity(settings: &Settings, peers: &[&Offer]) -> Outcome {
    let room = settings.ranks * settings.max_tokens;
    for expert in 0..settings.experts {
        let counts = |peer: &&Offer| peer.per_expert(settings.experts)[expert] as usize;
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

impl Receive {
    /// Takes this rank's rows and notes where its own went.
    ///
    /// # Safety
    /// The outputs are valid and have the layout's shapes.
    unsafe fn pull(
        &self,
        group: &View<'_>,
        sent: &mut Sent,
        peers: &[&Offer],
        operation: u64,
    ) -> Outcome {
        let (settings, me) = (group.settings, group.member.rank());
        let Sent { entries, slots, received, .. } = sent;
        let pull = Pull { settings, topk: self.topk, bytes: self.bytes, me, peers };
        match self.outputs {
            Outputs::ExpertMajor { rows, counters } => {
                check_capacity(settings, peers)?;
                slots.place_by_expert(entries, &peers[..me]);
                zeros(received, settings.local_experts);
                // SAFETY: this function's contract, and no expert receives too much.
                unsafe {
                    pull.expert_major(rows, received);
                    publish(received, counters);
                }
            }
            Outputs::RankMajor { rows, weights, ids, counters, global } => {
                slots.place_by_rank(entries, self.topk, settings.local_experts);
                zeros(received, settings.ranks);
                // SAFETY: this function's contract.
                unsafe {
                    pull.rank_major(rows, weights, ids, global, received);
                    publish(received, counters);
                }
            }
        }
        sent.operation = operation;
        Ok(())
    }
}

/// # Safety
/// `counters` is NULL or has an element for each count.
unsafe fn publish(counts: &[u32], counters: *mut i32) {
    if !counters.is_null() {
        for (i, &count) in counts.iter().enumerate() {
            // SAFETY: this function's contract.
            unsafe { counters.add(i).write(count as i32) };
        }
    }
}

/// A receiver at work.
struct Pull<'a> {
    settings: &'a Settings,
    topk: usize,
    bytes: usize,
    me: usize,
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
    /// The output has the layout's shape, and no expert receives more than its rows.
    unsafe fn expert_major(&self, rows: *mut u8, received: &mut [u32]) {
        let stride = self.settings.ranks * self.settings.max_tokens;
        for peer in self.peers {
            for (i, &expert) in peer.experts(self.topk).iter().enumerate() {
                let Some(own) = self.local(expert) else { continue };
                let slot = own * stride + received[own] as usize;
                // SAFETY: this function's contract.
                unsafe { self.copy_row(peer, i / self.topk, rows, slot) };
                received[own] += 1;
            }
        }
    }

    /// # Safety
    /// The outputs have the layout's shapes.
    unsafe fn rank_major(
        &self,
        rows: *mut u8,
        weights: *mut f32,
        ids: *mut i32,
        global: bool,
        received: &mut [u32],
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
            received[source] = (slot - source * most) as u32;
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
