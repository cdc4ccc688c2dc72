//! Low-latency combine (EP 4.4): every rank sums the rows of its tokens, which it finds by the
//! slots of its last dispatch.

use nccl_ext_core::DataType;

use super::combine::{Arguments, output};
use std::sync::Arc;

use super::dispatch_ll::{check_blocks, check_hidden};
use super::geometry;
use super::group::View;
use super::handle::{self, Layout, Ready, compile_failure};
use super::low_latency::{Pending, Sent, require_nothing_staged};
use super::masked;
use super::numerics::{BLOCK, Token, with_token_type};
use super::routing::NOWHERE;
use super::settings::Settings;
use super::tensor::{Tensor, WindowOnly};
use super::topk::TopK;
use super::update::not_updated;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Descriptor, KEYS};
use nccl_ext_core::raw::ncclResult_t;

/// The rows that a rank gives back.
pub(super) struct Give {
    pub(super) key: [u64; KEYS],
    /// NULL when the rank takes no part.
    pub(super) rows: *const u8,
    /// The first row of each expert's or source's region; NULL where they are as the dispatch
    /// received them.
    pub(super) starts: *const usize,
}

// SAFETY: the peers only read.
unsafe impl Descriptor for Give {
    const NAME: &'static str = "ncclEpCombine";
    const KEY: [&'static str; KEYS] =
        ["group", "layout", "num_topk", "hidden", "datatype", "dispatch"];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

// SAFETY: it is made to be read by other threads; its makers say how long.
unsafe impl Send for Give {}
// SAFETY: as above.
unsafe impl Sync for Give {}

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(super) unsafe fn combine(group: &View<'_>, ready: &Ready, arguments: &Arguments) -> Outcome {
    let (member, settings) = (group.member, group.settings);
    let assert = FailureClass::Assert;
    let state = &mut *handle::lock(&ready.low);
    let topk = state.topk.ok_or_else(|| not_updated(assert, ncclResult_t::ncclInvalidUsage))?;
    let Settings { ranks, max_tokens, local_experts, .. } = *settings;
    let expert_major = ready.layout == Layout::ExpertMajor;
    let tokens = &arguments.tokens;
    tokens.require_ndim(assert, 3)?;
    let hidden = tokens.extent(2);
    check_hidden(hidden, 16)?;
    check_hidden(hidden, 128)?;
    if expert_major {
        tokens.require_shape(assert, &[local_experts, ranks * max_tokens, hidden])?;
    } else {
        tokens.require_shape(assert, &[ranks, max_tokens, hidden])?;
    }
    // SAFETY: this function's contract.
    let out = unsafe { output(arguments, topk.tokens, hidden, assert)? };
    let undefined = WindowOnly::Undefined;
    let mut weights = core::ptr::null();
    if expert_major {
        // Listed under the outputs, but it is the routing weights, an input.
        // SAFETY: this function's contract.
        let tensor =
            unsafe { Tensor::optional(arguments.outputs.topk_weights, "outputs.topk_weights")? };
        let tensor =
            tensor.ok_or_else(|| Refusal::null(FailureClass::Throw, "outputs.topk_weights"))?;
        tensor.require_shape(assert, &[topk.tokens, ready.topk])?;
        tensor.require_type(assert, &[DataType::Float32])?;
        weights = tensor.data(member, undefined)?.cast::<f32>();
    }
    check_blocks(settings)?;
    check_row(settings, arguments.data_type, hidden)?;
    require_nothing_staged(handle::lock(group.staging).pending)?;
    // SAFETY: the caller keeps the table of the last update until the step's last combine.
    unsafe { check_dispatched(&state.sent, topk)? };
    let sent = &state.sent;
    let give = Give {
        key: [
            group.index,
            ready.layout as u64,
            ready.topk as u64,
            hidden as u64,
            arguments.data_type as u64,
            // Ranks with masks count on their own.
            if group.masks.is_some() { 0 } else { sent.operation },
        ],
        rows: tokens.data(member, undefined)?,
        starts: core::ptr::null(),
    };
    let receive = Receive {
        out: out.data(member, undefined)?,
        hidden,
        topk: ready.topk,
        data_type: arguments.data_type,
        weights,
        expert_major,
    };
    let bytes = hidden * arguments.data_type.size();
    let stride = if expert_major { ranks * max_tokens } else { max_tokens };
    if let Some(masks) = group.masks {
        // SAFETY: the input has the layout's shape, of which the dispatch filled that much.
        let operation = unsafe {
            masked::send_combine(group, masks, sent, &give, bytes, stride, expert_major)?
        };
        let key = give.key;
        if arguments.send_only {
            state.pending = Some(Pending::Combine { operation, key, receive });
            handle::lock(group.staging).pending = true;
            return Ok(());
        }
        // SAFETY: the output was checked.
        return unsafe { masked::receive_combine(group, masks, sent, operation, key, &receive) };
    }
    let stage = |operation| {
        let mut staging = handle::lock(group.staging);
        // SAFETY: the input has the layout's shape, of which the dispatch filled that much.
        unsafe { staging.bank(operation).stage_give(&give, bytes, stride, &sent.received) }
    };
    if arguments.send_only {
        let copy = stage(member.next_operation(group.line())?);
        // SAFETY: the group's bank keeps the copy until the second operation from here, and the
        // group outlives its line.
        let operation = unsafe { member.stage(group.line(), &*copy)? };
        let key = give.key;
        state.pending = Some(Pending::Combine { operation, key, receive });
        handle::lock(group.staging).pending = true;
        return Ok(());
    }
    // SAFETY: all ranks combine the same dispatch in the same shape, and the output was checked.
    let work = |peers: &[&Give], _| unsafe { receive.sum(group, sent, peers) };
    let stage = |operation| Some(Arc::as_ptr(&stage(operation)));
    member.collective_among_staged(group.line(), &give, work, stage)
}

/// The receive half of a staged combine.
///
/// # Safety
/// The output and the weights of the staged call are still valid.
pub(super) unsafe fn complete(
    group: &View<'_>,
    sent: &Sent,
    operation: u64,
    key: [u64; KEYS],
    receive: &Receive,
) -> Outcome {
    if let Some(masks) = group.masks {
        // SAFETY: this function's contract.
        return unsafe { masked::receive_combine(group, masks, sent, operation, key, receive) };
    }
    group.member.complete(group.line(), operation, |peers: &[&Give]| {
        // SAFETY: this function's contract.
        unsafe { receive.sum(group, sent, peers) }
    })
}

/// Where a rank puts its sums.
#[derive(Clone, Copy)]
pub(super) struct Receive {
    out: *mut u8,
    hidden: usize,
    topk: usize,
    data_type: DataType,
    /// Expert-major only.
    weights: *const f32,
    expert_major: bool,
}

// SAFETY: the caller keeps output and weights valid until the operation is complete, from
// whatever thread that is called.
unsafe impl Send for Receive {}

impl Receive {
    /// # Safety
    /// The peers give back the dispatch of `sent`; the output has a row, and expert-major weights
    /// `topk` entries, for each of its tokens.
    pub(super) unsafe fn sum(&self, group: &View<'_>, sent: &Sent, peers: &[&Give]) {
        let (settings, me) = (group.settings, group.member.rank());
        with_token_type!(self.data_type, T => {
            // SAFETY: this function's contract.
            unsafe { Sum { receive: self, settings, sent, peers, me }.all::<T>(self.out.cast()) }
        });
    }
}

/// Rows that the combine kernel compiles and runs for (EP 4.4.1).
fn check_row(settings: &Settings, data_type: DataType, hidden: usize) -> Outcome {
    let bytes = hidden.saturating_mul(data_type.size());
    let warps = geometry::ll_warps(geometry::ll_groups(settings.experts, settings.comm_sms));
    let most = 1024 * warps.saturating_sub(1);
    require(bytes <= most, || {
        let rule = "each decoding warp takes 1024 bytes of a row";
        let expected = format_args!("at most {most} bytes").to_string();
        Refusal::argument(FailureClass::Return, "inputs.tokens", rule, expected, bytes)
    })?;
    require(hidden.is_multiple_of(512), || {
        let rule = "the combine kernel's message slots are multiples of 16 bytes";
        compile_failure("inputs.tokens", rule, "a multiple of 512 elements".into(), hidden)
    })?;
    require(bytes <= settings.max_token_bytes, || {
        let rule = "a row is at most max_token_bytes long";
        let expected = format_args!("at most {} bytes", settings.max_token_bytes).to_string();
        let undefined = FailureClass::UndefinedBehaviour;
        Refusal::argument(undefined, "inputs.tokens", rule, expected, bytes)
    })
}

/// The slots of the last dispatch are those of the ids that are combined.
///
/// # Safety
/// The top-k table is valid and does not change meanwhile.
unsafe fn check_dispatched(sent: &Sent, topk: TopK) -> Outcome {
    let undefined = FailureClass::UndefinedBehaviour;
    require(sent.operation != 0, || {
        let rule = "a combine follows a dispatch of the handle";
        Refusal::usage(undefined, "handle", rule, "ncclEpDispatch before", "none")
    })?;
    // SAFETY: this function's contract.
    let ids = unsafe { topk.ids() };
    let same = ids.len() == sent.entries.experts.len()
        && ids
            .zip(&sent.entries.experts)
            .all(|(id, &expert)| u32::try_from(id).unwrap_or(NOWHERE) == expert);
    require(same, || {
        let rule = "the ids of a step stay the same from its dispatch to its last combine";
        Refusal::usage(undefined, "topk_idx", rule, "the ids that were dispatched", "others")
    })
}

/// A rank that sums.
struct Sum<'a> {
    receive: &'a Receive,
    settings: &'a Settings,
    sent: &'a Sent,
    peers: &'a [&'a Give],
    me: usize,
}

impl Sum<'_> {
    /// # Safety
    /// As [`Receive::sum`]; rows are aligned elements of `T`.
    unsafe fn all<T: Token>(&self, out: *mut T) {
        let mut sums = [0.0_f32; BLOCK];
        let Receive { hidden, topk, weights, expert_major, .. } = *self.receive;
        let Sent { entries, slots, .. } = self.sent;
        let tokens = entries.experts.chunks_exact(topk);
        let tokens = tokens.zip(slots.of_entry.chunks_exact(topk)).enumerate();
        for (token, (experts, slots)) in tokens {
            for begin in (0..hidden).step_by(BLOCK) {
                let len = BLOCK.min(hidden - begin);
                let sum = &mut sums[..len];
                sum.fill(0.0);
                for (k, (&expert, &slot)) in experts.iter().zip(slots).enumerate() {
                    if slot == NOWHERE || self.is_absent(expert as usize) {
                        continue;
                    }
                    // SAFETY: this function's contract; nobody writes the rows meanwhile.
                    let values = unsafe {
                        let row = self.row(expert as usize, slot as usize).cast::<T>();
                        core::slice::from_raw_parts(row.add(begin), len)
                    };
                    if expert_major {
                        // SAFETY: this function's contract.
                        let weight = unsafe { weights.add(token * topk + k).read() };
                        T::multiply_add(sum, values, weight);
                    } else {
                        T::add(sum, values);
                    }
                }
                // SAFETY: the output's rows; nobody else has them.
                let out = unsafe {
                    core::slice::from_raw_parts_mut(out.add(token * hidden + begin), len)
                };
                T::store(sum, out);
            }
        }
    }

    /// Whether an expert's rank takes no part: then its rows are left out (EP 4.4.4).
    fn is_absent(&self, expert: usize) -> bool {
        self.peers[expert / self.settings.local_experts].rows.is_null()
    }

    /// The row in an entry's slot.
    ///
    /// # Safety
    /// The entry was dispatched to that slot.
    unsafe fn row(&self, expert: usize, slot: usize) -> *const u8 {
        let Settings { local_experts, ranks, max_tokens, .. } = *self.settings;
        let peer = self.peers[expert / local_experts];
        let (region, stride) = match self.receive.expert_major {
            true => (expert % local_experts, ranks * max_tokens),
            false => (self.me, max_tokens),
        };
        let bytes = self.receive.hidden * self.receive.data_type.size();
        // SAFETY: this function's contract; a packed give has the start of every region.
        unsafe {
            let start = match peer.starts.is_null() {
                true => region * stride,
                false => peer.starts.add(region).read(),
            };
            peer.rows.add((start + slot) * bytes)
        }
    }
}
