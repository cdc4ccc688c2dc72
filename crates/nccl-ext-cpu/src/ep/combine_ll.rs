//! Low-latency combine (EP 4.4): every rank sums the rows of its tokens, which it finds by the
//! slots of its last dispatch.

use nccl_ext_core::DataType;

use super::combine::{Arguments, output};
use super::dispatch_ll::{Sent, check_blocks, check_hidden};
use super::geometry;
use super::group::{Settings, View};
use super::handle::{self, Layout, Ready, compile_failure};
use super::numerics::{BLOCK, Token, with_token_type};
use super::routing::NOWHERE;
use super::tensor::{Tensor, WindowOnly};
use super::topk::TopK;
use super::update::not_updated;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Descriptor, KEYS};
use nccl_ext_core::raw::ncclResult_t;

/// The rows that a rank gives back.
struct Give {
    key: [u64; KEYS],
    rows: *const u8,
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
    require(!arguments.send_only, || {
        Refusal::unsupported("send_only", ncclResult_t::ncclInvalidUsage)
    })?;
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
            sent.operation,
        ],
        rows: tokens.data(member, undefined)?,
    };
    let out = out.data(member, undefined)?;
    let me = member.rank();
    member.collective(group.line(), &give, |peers, _| {
        with_token_type!(arguments.data_type, T => {
            let topk = ready.topk;
            let sum = Sum { settings, sent, peers, hidden, topk, weights, me };
            // SAFETY: all ranks combine the same dispatch in the same shape; the output has a row
            // for each token, and expert-major weights have `topk` for each.
            unsafe { sum.all::<T>(out.cast()) }
        });
    })
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
    settings: &'a Settings,
    sent: &'a Sent,
    peers: &'a [&'a Give],
    hidden: usize,
    topk: usize,
    /// NULL for rank-major, whose rows count as they are.
    weights: *const f32,
    me: usize,
}

impl Sum<'_> {
    /// # Safety
    /// Peers have the layout's shape, with aligned elements of `T`, and got the dispatch of
    /// `sent`; the output has a row, and expert-major weights `topk` entries, for each token.
    unsafe fn all<T: Token>(&self, out: *mut T) {
        let mut sums = [0.0_f32; BLOCK];
        let Sent { entries, slots, .. } = self.sent;
        let tokens = entries.experts.chunks_exact(self.topk);
        let tokens = tokens.zip(slots.of_entry.chunks_exact(self.topk)).enumerate();
        for (token, (experts, slots)) in tokens {
            for begin in (0..self.hidden).step_by(BLOCK) {
                let len = BLOCK.min(self.hidden - begin);
                let sum = &mut sums[..len];
                sum.fill(0.0);
                for (k, (&expert, &slot)) in experts.iter().zip(slots).enumerate() {
                    if slot == NOWHERE {
                        continue;
                    }
                    let (rank, row) = self.place(expert as usize, slot as usize);
                    // SAFETY: this function's contract; nobody writes the rows meanwhile.
                    let values = unsafe {
                        let first = self.peers[rank].rows.cast::<T>();
                        core::slice::from_raw_parts(first.add(row * self.hidden + begin), len)
                    };
                    if self.weights.is_null() {
                        T::add(sum, values);
                    } else {
                        // SAFETY: this function's contract.
                        let weight = unsafe { self.weights.add(token * self.topk + k).read() };
                        T::multiply_add(sum, values, weight);
                    }
                }
                // SAFETY: the output's rows; nobody else has them.
                let out = unsafe {
                    core::slice::from_raw_parts_mut(out.add(token * self.hidden + begin), len)
                };
                T::store(sum, out);
            }
        }
    }

    /// Rank and row of an entry's slot.
    fn place(&self, expert: usize, slot: usize) -> (usize, usize) {
        let Settings { local_experts, ranks, max_tokens, .. } = *self.settings;
        let (rank, local) = (expert / local_experts, expert % local_experts);
        let region =
            if self.weights.is_null() { self.me * max_tokens } else { local * ranks * max_tokens };
        (rank, region + slot)
    }
}
