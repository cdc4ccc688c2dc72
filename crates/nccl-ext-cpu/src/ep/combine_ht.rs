//! High-throughput combine (EP 4.8): every rank sums the rows of its tokens, which it finds by the
//! slots of the last update.

use super::combine::{Arguments, output};
use super::dispatch_ht::check_row;
use super::group::View;
use super::handle::{self, Layout, Ready};
use super::numerics::{BLOCK, Token, with_token_type};
use super::routing::{NOWHERE, Row};
use super::settings::EmMode;
use super::tensor::WindowOnly;
use super::update::{HighThroughput, not_updated};
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{COMM, Descriptor, KEYS};
use nccl_ext_core::raw::ncclResult_t;

/// The rows that a rank gives back.
struct Give {
    key: [u64; KEYS],
    rows: *mut u8,
    /// Whether sums of a rank's own rows are left in them (EP 4.8.5).
    mutated: bool,
}

// SAFETY: each peer reads, and where `mutated` writes, only the rows that the update placed for
// it; the owner made sure that they exist.
unsafe impl Descriptor for Give {
    const NAME: &'static str = "ncclEpCombine";
    const KEY: [&'static str; KEYS] = ["group", "update", "hidden", "datatype", "routing", ""];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

/// # Safety
/// The C contract of `ncclEpCombine`, for the tensors of `arguments`.
pub(super) unsafe fn combine(group: &View<'_>, ready: &Ready, arguments: &Arguments) -> Outcome {
    let (member, settings) = (group.member, group.settings);
    let (assert, ret) = (FailureClass::Assert, FailureClass::Return);
    let state = &*handle::lock(&ready.high);
    require(state.update != 0, || not_updated(FailureClass::Trap, ncclResult_t::ncclInvalidUsage))?;
    let tokens = &arguments.tokens;
    require(tokens.ndim() > 0, || {
        Refusal::argument(ret, "inputs.tokens", "the number of extents", 2, tokens.ndim())
    })?;
    tokens.require_ndim(assert, 2)?;
    let hidden = tokens.extent(1);
    let bytes = hidden.saturating_mul(arguments.data_type.size());
    check_row(assert, "inputs.tokens", bytes)?;
    require(arguments.inputs.topk_weights.is_null(), || {
        let rule = "forward combine takes no weights";
        Refusal::argument(ret, "inputs.topk_weights", rule, "NULL", "a tensor")
    })?;
    let undefined = FailureClass::UndefinedBehaviour;
    // SAFETY: this function's contract.
    let out = unsafe { output(arguments, state.routes.tokens(), hidden, undefined)? };
    require(!settings.zero_copy_on || tokens.has_window(), || {
        let rule = "with zero_copy ON the input is a window";
        Refusal::argument(ret, "inputs.tokens", rule, "win_hdl", "none")
    })?;
    check_kernel(group, ready, state, hidden)?;
    require(bytes <= settings.max_token_bytes, || {
        let rule = "a row is at most max_token_bytes long";
        let expected = format_args!("at most {} bytes", settings.max_token_bytes).to_string();
        Refusal::argument(undefined, "inputs.tokens", rule, expected, bytes)
    })?;
    let expert_major = ready.layout == Layout::ExpertMajor;
    check_rows(group, state, expert_major, tokens.extent(0))?;
    let mode = if expert_major { Some(settings.em_mode) } else { None };
    let give = Give {
        key: [
            group.index,
            state.update,
            hidden as u64,
            arguments.data_type as u64,
            state.placement.digest,
            0,
        ],
        rows: tokens.data(member, WindowOnly::Resolved)?,
        mutated: mode == Some(EmMode::LocalDup) && tokens.has_window(),
    };
    let out = out.data(member, WindowOnly::Resolved)?;
    member.collective(COMM, &give, |peers, _| {
        with_token_type!(arguments.data_type, T => {
            let sum = Sum { state, peers, hidden, mode };
            // SAFETY: all ranks are at the same update and of the same shape; the output has a
            // row for each token.
            unsafe { sum.all::<T>(out.cast()) }
        });
    })
}

/// What the vendor's kernels need, which abort while they compile or run (EP 4.8.1).
fn check_kernel(group: &View<'_>, ready: &Ready, state: &HighThroughput, hidden: usize) -> Outcome {
    let abort = FailureClass::JitAbort;
    require(hidden.is_multiple_of(8), || {
        let rule = "the combine kernel compiles for groups of eight elements";
        Refusal::argument(abort, "inputs.tokens", rule, "a multiple of 8 elements", hidden)
    })?;
    let mode = group.settings.em_mode;
    if ready.layout != Layout::ExpertMajor || mode == EmMode::NvlinkDup {
        return Ok(());
    }
    require(ready.topk <= 32, || {
        let rule = "expert-major combine sums at most 32 experts a token";
        let class = if mode == EmMode::LocalPermute { abort } else { FailureClass::Trap };
        Refusal::argument(class, "num_topk", rule, "at most 32", ready.topk)
    })?;
    let widest = state.placement.widest;
    require(mode == EmMode::LocalPermute || widest <= 8, || {
        let rule = "local duplication sums at most eight experts of a token on one rank";
        Refusal::argument(FailureClass::Trap, "topk_idx", rule, "at most 8", widest)
    })
}

/// Every row that was received is given back.
fn check_rows(
    group: &View<'_>,
    state: &HighThroughput,
    expert_major: bool,
    rows: usize,
) -> Outcome {
    let settings = group.settings;
    let placement = &state.placement;
    let totals = if expert_major { &placement.zone_totals } else { &placement.flat_totals };
    let cap = if settings.drop { settings.max_recv } else { u64::MAX };
    let received = totals[group.member.rank()].min(cap);
    require(rows as u64 >= received, || {
        let permute = expert_major && settings.em_mode == EmMode::LocalPermute;
        let class = if permute { FailureClass::Trap } else { FailureClass::UndefinedBehaviour };
        let rule = "the input has every row that was received";
        let expected = format_args!("at least {received} rows").to_string();
        Refusal::argument(class, "inputs.tokens", rule, expected, rows)
    })
}

/// A rank that sums.
struct Sum<'a> {
    state: &'a HighThroughput,
    peers: &'a [&'a Give],
    hidden: usize,
    /// `None` for FLAT.
    mode: Option<EmMode>,
}

impl Sum<'_> {
    /// # Safety
    /// Peers and output hold rows of `hidden` aligned elements of `T`; every slot of the
    /// placement exists on its rank and is this rank's.
    unsafe fn all<T: Token>(&self, out: *mut T) {
        let mut sums = [0.0_f32; BLOCK];
        for token in 0..self.state.routes.tokens() {
            for begin in (0..self.hidden).step_by(BLOCK) {
                let len = BLOCK.min(self.hidden - begin);
                let sum = &mut sums[..len];
                sum.fill(0.0);
                for index in self.state.routes.rows_of(token) {
                    let row = self.state.routes.row(index);
                    // SAFETY: this function's contract.
                    unsafe {
                        match self.mode {
                            None => {
                                let slot = self.state.placement.flat_slot[index];
                                self.add::<T>(sum, row, slot, begin);
                            }
                            Some(EmMode::NvlinkDup) => {
                                for &slot in self.slots(row) {
                                    self.add::<T>(sum, row, slot, begin);
                                }
                            }
                            Some(_) => self.add_partial::<T>(sum, row, begin),
                        }
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

    fn slots(&self, row: Row) -> &[u32] {
        &self.state.placement.copy_slot[row.first as usize..][..row.count as usize]
    }

    /// # Safety
    /// As [`all`](Self::all); the block lies inside a row.
    unsafe fn add<T: Token>(&self, sum: &mut [f32], row: Row, slot: u32, begin: usize) {
        if slot == NOWHERE {
            return;
        }
        // SAFETY: this function's contract; nobody writes the row meanwhile.
        let values = unsafe {
            let first = self.peers[row.rank as usize].rows.cast::<T>();
            let first = first.add(slot as usize * self.hidden + begin);
            core::slice::from_raw_parts(first, sum.len())
        };
        T::add(sum, values);
    }

    /// A rank's part is summed and rounded on its own (EP 4.8.4).
    ///
    /// # Safety
    /// As [`add`](Self::add).
    unsafe fn add_partial<T: Token>(&self, sum: &mut [f32], row: Row, begin: usize) {
        let kept = self.slots(row).iter().copied().filter(|&slot| slot != NOWHERE);
        let mut others = kept.clone();
        let Some(first) = others.next() else { return };
        if others.next().is_none() {
            // Rounding a single row gives the row.
            // SAFETY: this function's contract.
            return unsafe { self.add::<T>(sum, row, first, begin) };
        }
        let mut part = [0.0_f32; BLOCK];
        let mut rounded = [T::default(); BLOCK];
        let (part, rounded) = (&mut part[..sum.len()], &mut rounded[..sum.len()]);
        for slot in kept {
            // SAFETY: this function's contract.
            unsafe { self.add::<T>(part, row, slot, begin) };
        }
        T::store(part, rounded);
        T::add(sum, rounded);
        let peer = self.peers[row.rank as usize];
        if peer.mutated {
            // SAFETY: this function's contract; the row is this rank's alone, and its block has
            // been read already.
            unsafe {
                let to = peer.rows.cast::<T>().add(first as usize * self.hidden + begin);
                core::ptr::copy_nonoverlapping(rounded.as_ptr(), to, rounded.len());
            }
        }
    }
}
