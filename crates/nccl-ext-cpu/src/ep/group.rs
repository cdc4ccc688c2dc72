//! Groups: creation in the vendor's order (EP 2.1), resolved settings, destruction.

use core::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nccl_ep_sys::{
    ncclEpAlgorithm_t, ncclEpAllocConfig_t, ncclEpGroup_t, ncclEpGroupConfig_t,
    ncclEpOverflowPolicy_t, ncclEpZeroCopyMode_t,
};
use nccl_ext_core::raw::{cudaError_t, ncclComm_t};

use super::environment::Environment;
use super::geometry;
use super::staging::Staging;
use super::structs;
use crate::driver::SM_COUNT;
use crate::entry::Scope;
use crate::nccl;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{COMM, Descriptor, KEYS, LineId, Member};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    LowLatency,
    HighThroughput,
}

/// How expert-major rows travel on high throughput (EP 2.4). It decides the rounding of combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmMode {
    LocalPermute,
    LocalDup,
    NvlinkDup,
}

/// A group's configuration with every AUTO resolved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) algorithm: Algorithm,
    pub(super) ranks: usize,
    pub(super) experts: usize,
    pub(super) local_experts: usize,
    pub(super) max_tokens: usize,
    /// Rows a rank can receive; in eager mode the worst case.
    pub(super) max_recv: u64,
    pub(super) eager: bool,
    pub(super) max_token_bytes: usize,
    /// 0 lets the buffer grow with its handles.
    pub(super) rdma_buffer_size: u64,
    pub(super) comm_sms: u32,
    pub(super) zero_copy_on: bool,
    pub(super) drop: bool,
    /// 0 when not given.
    pub(super) num_topk: usize,
    pub(super) em_mode: EmMode,
    pub(super) mask: bool,
}

/// An EP group. An `ncclEpGroup_t` points to one, its handles own it too.
pub(super) struct Group {
    algorithm: Algorithm,
    /// `None` when creation failed after the out pointer was set.
    built: Option<Built>,
    pub(super) live_handles: AtomicUsize,
}

struct Built {
    member: Arc<Member>,
    settings: Settings,
    index: u64,
    alloc: Alloc,
    staging: Mutex<Staging>,
    /// What creation allocates through the caller's functions. Nothing is kept in it.
    _blocks: Vec<Block>,
}

/// A group that can be used.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) member: &'a Arc<Member>,
    pub(super) settings: &'a Settings,
    /// The same on every rank.
    pub(super) index: u64,
    pub(super) alloc: &'a Alloc,
    pub(super) staging: &'a Mutex<Staging>,
}

impl View<'_> {
    /// The line of this group's low-latency operations.
    pub(super) fn line(&self) -> LineId {
        LineId(self.index)
    }
}

impl Group {
    /// The group, unless it is what a failed creation left behind.
    pub(super) fn view(&self) -> Outcome<View<'_>> {
        let built = self.built.as_ref().ok_or_else(|| {
            Refusal::usage(
                FailureClass::UndefinedBehaviour,
                "ep_group",
                "a group whose creation failed cannot be used",
                "a group that was created with success",
                "what a failed ncclEpCreateGroup left",
            )
        })?;
        let Built { member, settings, index, alloc, staging, .. } = built;
        Ok(View { member, settings, index: *index, alloc, staging })
    }
}

/// The group behind a handle, with one more owner.
///
/// # Safety
/// `group` is NULL or a live group of this backend.
pub(super) unsafe fn shared(group: ncclEpGroup_t, class: FailureClass) -> Outcome<Arc<Group>> {
    require(!group.is_null(), || Refusal::null(class, "ep_group"))?;
    let raw: *const Group = group.cast_const().cast();
    // SAFETY: a live group is what `Arc::into_raw` gave in `create`.
    unsafe {
        Arc::increment_strong_count(raw);
        Ok(Arc::from_raw(raw))
    }
}

/// The caller's allocator, or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alloc(ncclEpAllocConfig_t);

// SAFETY: the caller says that its functions and context may be used from the threads that use
// the group.
unsafe impl Send for Alloc {}
// SAFETY: as above.
unsafe impl Sync for Alloc {}

impl Alloc {
    /// Allocates through the caller's function; without one there is nothing to allocate, because
    /// this backend keeps its state elsewhere.
    pub(super) fn allocate(&self, bytes: usize) -> Outcome<Option<Block>> {
        let Some(alloc_fn) = self.0.alloc_fn else { return Ok(None) };
        let mut pointer = core::ptr::null_mut();
        // SAFETY: the caller's function keeps the contract of `ncclEpAllocFn_t`.
        let code = unsafe { alloc_fn(&mut pointer, bytes, self.0.context) };
        require(code == cudaError_t::cudaSuccess, || {
            Refusal::usage(
                FailureClass::Throw,
                "alloc_fn",
                "the allocator gives the memory it is asked for",
                format_args!("{bytes} bytes"),
                format_args!("cudaError_t {}", code.0),
            )
        })?;
        Ok(Some(Block { pointer, alloc: *self }))
    }
}

/// Memory of the caller's allocator.
pub(super) struct Block {
    pointer: *mut c_void,
    alloc: Alloc,
}

// SAFETY: as `Alloc`.
unsafe impl Send for Block {}
// SAFETY: nothing is read through it.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(free_fn) = self.alloc.0.free_fn {
            // SAFETY: the pointer came from the allocator's other half and is freed once. The
            // result is ignored, as the vendor's library does.
            let _ = unsafe { free_fn(self.pointer, self.alloc.0.context) };
        }
    }
}

struct Meet {
    group: u64,
}

// SAFETY: it points to nothing.
unsafe impl Descriptor for Meet {
    const NAME: &'static str = "ncclEpCreateGroup";
    const KEY: [&'static str; KEYS] = ["number", "", "", "", "", ""];
    fn key(&self) -> [u64; KEYS] {
        [self.group, 0, 0, 0, 0, 0]
    }
}

/// What ranks compare before they share a group.
struct Compare {
    group: u64,
    settings: Settings,
}

// SAFETY: it points to nothing.
unsafe impl Descriptor for Compare {
    const NAME: &'static str = "ncclEpCreateGroup";
    const KEY: [&'static str; KEYS] = Meet::KEY;
    fn key(&self) -> [u64; KEYS] {
        [self.group, 0, 0, 0, 0, 0]
    }
}

struct Leave {
    group: u64,
}

// SAFETY: it points to nothing.
unsafe impl Descriptor for Leave {
    const NAME: &'static str = "ncclEpGroupDestroy";
    const KEY: [&'static str; KEYS] = Meet::KEY;
    fn key(&self) -> [u64; KEYS] {
        [self.group, 0, 0, 0, 0, 0]
    }
}

/// # Safety
/// The C contract of `ncclEpCreateGroup`.
pub(super) unsafe fn create(
    scope: &Scope,
    out: *mut ncclEpGroup_t,
    comm: ncclComm_t,
    config: *const ncclEpGroupConfig_t,
) -> Outcome {
    let assert = FailureClass::Assert;
    require(!out.is_null(), || Refusal::null(assert, "ep_group"))?;
    // SAFETY: this function's contract.
    let member = unsafe { nccl::member(comm) }.map_err(|refusal| refusal.with_class(assert))?;
    scope.enter(&member);
    // SAFETY: this function's contract.
    let config = unsafe { structs::required(config, "config")? };
    let algorithm = match config.algorithm {
        ncclEpAlgorithm_t::NCCL_EP_ALGO_LOW_LATENCY => Algorithm::LowLatency,
        ncclEpAlgorithm_t::NCCL_EP_ALGO_HIGH_THROUGHPUT => Algorithm::HighThroughput,
        other => {
            let rule = "the algorithm is one of the two";
            return Err(Refusal::argument(assert, "algorithm", rule, "0 or 1", other.0));
        }
    };
    positive(config.num_experts, "num_experts")?;
    positive(config.max_token_bytes, "max_token_bytes")?;
    let high = algorithm == Algorithm::HighThroughput;
    require(!high || config.max_token_bytes.is_multiple_of(16), || {
        Refusal::argument(
            FailureClass::Return,
            "max_token_bytes",
            "high throughput moves rows in units of 16 bytes",
            "a multiple of 16",
            config.max_token_bytes,
        )
    })?;
    positive(config.max_dispatch_tokens_per_rank, "max_dispatch_tokens_per_rank")?;
    // From here on the out pointer is set whatever happens (EP 2.1, #10).
    let built = build(&member, algorithm, &config);
    let (built, result) = match built {
        Ok(built) => (Some(built), Ok(())),
        Err(refusal) => (None, Err(refusal)),
    };
    let group = Arc::new(Group { algorithm, built, live_handles: AtomicUsize::new(0) });
    // SAFETY: this function's contract.
    unsafe { out.write(Arc::into_raw(group).cast_mut().cast()) };
    result
}

fn positive(value: u32, name: &str) -> Outcome {
    require(value > 0, || {
        Refusal::argument(FailureClass::Assert, name, "the value is positive", ">= 1", value)
    })
}

fn build(
    member: &Arc<Member>,
    algorithm: Algorithm,
    config: &ncclEpGroupConfig_t,
) -> Outcome<Built> {
    let environment = Environment::read();
    let ret = FailureClass::Return;
    let alloc = Alloc(config.alloc);
    require(config.alloc.alloc_fn.is_some() == config.alloc.free_fn.is_some(), || {
        let rule = "allocation and free are given together";
        Refusal::usage(ret, "alloc", rule, "both functions or neither", "one of them")
    })?;
    require(config.max_num_sms <= SM_COUNT, || {
        let expected = format_args!("at most {SM_COUNT}").to_string();
        let rule = "the device has that many multiprocessors";
        Refusal::usage(ret, "max_num_sms", rule, expected, config.max_num_sms)
    })?;
    let settings = resolve(member, algorithm, config, &environment);
    if algorithm == Algorithm::LowLatency {
        check_groups(&settings)?;
    }
    let index = member.next_group();
    member.barrier(&Meet { group: index })?;
    check_budget(config, &settings)?;
    compare(member, index, settings)?;
    require(!(environment.local_dup && environment.nvlink_dup), || {
        let rule = "one of the expert-major modes is forced at most";
        let variables = "NCCL_EP_HT_EM_LOCAL_DUP, NCCL_EP_HT_EM_NVLINK_DUP";
        Refusal::usage(ret, variables, rule, "one of them on", "both on")
    })?;
    let bitmap = settings
        .max_tokens
        .saturating_mul(settings.ranks)
        .saturating_mul((settings.ranks * settings.local_experts).div_ceil(8));
    let sizes: &[usize] = match algorithm {
        Algorithm::LowLatency => &[32 << 20],
        Algorithm::HighThroughput => &[32 << 20, 32, bitmap],
    };
    let blocks = sizes.iter().map(|&bytes| alloc.allocate(bytes)).collect::<Outcome<Vec<_>>>()?;
    if algorithm == Algorithm::LowLatency {
        member.open_line(LineId(index));
    }
    let blocks = blocks.into_iter().flatten().collect();
    let (member, staging) = (Arc::clone(member), Mutex::default());
    Ok(Built { member, settings, index, alloc, staging, _blocks: blocks })
}

/// EP 2.2.
fn resolve(
    member: &Member,
    algorithm: Algorithm,
    config: &ncclEpGroupConfig_t,
    environment: &Environment,
) -> Settings {
    let ranks = member.size();
    let high = algorithm == Algorithm::HighThroughput;
    let experts = config.num_experts as usize;
    let max_tokens = config.max_dispatch_tokens_per_rank as usize;
    let all_tokens = (ranks as u64).saturating_mul(max_tokens as u64);
    let zero_copy_on = config.zero_copy == ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;
    let comm_sms = match (config.max_num_sms, high) {
        (0, true) => 16,
        (0, false) => SM_COUNT,
        (given, _) => given,
    };
    let override_sms = environment.comm_sms.filter(|sms| (1..=SM_COUNT).contains(sms));
    let max_recv = match (config.max_recv_tokens_per_rank, high) {
        (0, true) => all_tokens.saturating_mul(u64::from(config.num_topk.max(1))),
        (0, false) => all_tokens,
        (given, _) => u64::from(given),
    };
    Settings {
        algorithm,
        ranks,
        experts,
        local_experts: experts / ranks,
        max_tokens,
        max_recv,
        eager: high && config.max_recv_tokens_per_rank == 0,
        max_token_bytes: config.max_token_bytes as usize,
        rdma_buffer_size: config.rdma_buffer_size,
        comm_sms: override_sms.unwrap_or(comm_sms),
        zero_copy_on,
        drop: high && config.overflow_policy == ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP,
        num_topk: config.num_topk as usize,
        em_mode: if environment.nvlink_dup {
            EmMode::NvlinkDup
        } else if environment.local_dup || zero_copy_on {
            EmMode::LocalDup
        } else {
            EmMode::LocalPermute
        },
        mask: config.enable_mask != 0,
    }
}

/// EP 2.1 #18, 3.2 b.
pub(super) fn check_groups(settings: &Settings) -> Outcome {
    let groups = geometry::ll_groups(settings.experts, settings.comm_sms);
    require((1..=14).contains(&groups), || {
        Refusal::usage(
            FailureClass::Return,
            "num_experts",
            "a low-latency block serves 1 to 14 experts",
            format_args!("at most {} experts on {} SMs", 14 * settings.comm_sms, settings.comm_sms),
            settings.experts,
        )
    })
}

/// EP 2.1 #21 to #24.
fn check_budget(config: &ncclEpGroupConfig_t, settings: &Settings) -> Outcome {
    let throw = FailureClass::Throw;
    let high = settings.algorithm == Algorithm::HighThroughput;
    let (recv, tokens) = (config.max_recv_tokens_per_rank, config.max_dispatch_tokens_per_rank);
    require(!high || recv == 0 || recv >= tokens, || {
        let rule = "a rank can receive what one rank can send";
        let expected = format_args!("0 or at least {tokens}").to_string();
        Refusal::argument(throw, "max_recv_tokens_per_rank", rule, expected, recv)
    })?;
    require(settings.num_topk <= settings.experts, || {
        let rule = "a token has no more experts than there are";
        let expected = format_args!("at most {}", settings.experts).to_string();
        Refusal::argument(throw, "num_topk", rule, expected, settings.num_topk)
    })?;
    require(!(settings.eager && settings.drop), || {
        let rule = "without a receive budget nothing can be dropped";
        let expected = "TRAP, or max_recv_tokens_per_rank";
        Refusal::argument(throw, "overflow_policy", rule, expected, "DROP without a budget")
    })?;
    require(!settings.eager || u32::try_from(settings.max_recv).is_ok(), || {
        let rule = "ranks * max_dispatch_tokens_per_rank * num_topk fits 32 bits";
        let expected = format_args!("at most {}", u32::MAX).to_string();
        Refusal::argument(throw, "max_recv_tokens_per_rank", rule, expected, settings.max_recv)
    })
}

/// EP 2.1 #25. Other fields that differ are undefined in the vendor's library; here they would let
/// one rank write beyond what another has, so they are refused as well.
fn compare(member: &Member, index: u64, settings: Settings) -> Outcome {
    type Field = (&'static str, fn(&Settings) -> u64);
    const FIELDS: [Field; 13] = [
        ("max_recv_tokens_per_rank", |s| s.max_recv),
        ("algorithm", |s| s.algorithm as u64),
        ("num_experts", |s| s.experts as u64),
        ("max_dispatch_tokens_per_rank", |s| s.max_tokens as u64),
        ("max_recv_tokens_per_rank", |s| u64::from(s.eager)),
        ("max_token_bytes", |s| s.max_token_bytes as u64),
        ("rdma_buffer_size", |s| s.rdma_buffer_size),
        ("max_num_sms", |s| u64::from(s.comm_sms)),
        ("zero_copy", |s| u64::from(s.zero_copy_on)),
        ("overflow_policy", |s| u64::from(s.drop)),
        ("num_topk", |s| s.num_topk as u64),
        ("the expert-major mode", |s| s.em_mode as u64),
        ("enable_mask", |s| u64::from(s.mask)),
    ];
    let descriptor = Compare { group: index, settings };
    member.collective(COMM, &descriptor, |peers, _| {
        for (i, (name, field)) in FIELDS.into_iter().enumerate() {
            let first = field(&peers[0].settings);
            let other = peers.iter().position(|peer| field(&peer.settings) != first);
            let Some(rank) = other else { continue };
            let class = if i == 0 { FailureClass::Throw } else { FailureClass::UndefinedBehaviour };
            let rule = "all ranks configure the group alike";
            let found = format_args!("{} on rank {rank}", field(&peers[rank].settings)).to_string();
            let expected = format_args!("{first} as on rank 0").to_string();
            return Err(Refusal::argument(class, name, rule, expected, found));
        }
        Ok(())
    })?
}

/// # Safety
/// `group` is NULL or a live group of this backend, not used by any other thread.
pub(super) unsafe fn destroy(scope: &Scope, group: ncclEpGroup_t) -> Outcome {
    if group.is_null() {
        return Ok(());
    }
    // SAFETY: this function's contract.
    let shared = unsafe { shared(group, FailureClass::UndefinedBehaviour)? };
    let handles = shared.live_handles.load(Ordering::Acquire);
    require(handles == 0, || {
        let rule = "handles are destroyed before their group";
        let class = FailureClass::UndefinedBehaviour;
        Refusal::usage(class, "ep_group", rule, "no live handle", handles)
    })?;
    let low = shared.algorithm == Algorithm::LowLatency;
    match shared.view() {
        Ok(view) => {
            scope.enter(view.member);
            if low {
                view.member.barrier(&Leave { group: view.index })?;
                view.member.close_line(view.line());
            }
        }
        Err(refusal) if low => return Err(refusal.with_class(FailureClass::Throw)),
        Err(_) => {}
    }
    // SAFETY: the caller gives up the owner that `create` gave it. Nothing was freed before, so a
    // destroy that failed above can be made again.
    drop(unsafe { Arc::from_raw(group.cast_const().cast::<Group>()) });
    Ok(())
}

#[cfg(test)]
impl Settings {
    /// A low-latency group of nothing in particular.
    pub(super) fn for_tests(max_token_bytes: usize) -> Self {
        Self {
            algorithm: Algorithm::LowLatency,
            ranks: 1,
            experts: 1,
            local_experts: 1,
            max_tokens: 1,
            max_recv: 1,
            eager: false,
            max_token_bytes,
            rdma_buffer_size: 0,
            comm_sms: SM_COUNT,
            zero_copy_on: false,
            drop: false,
            num_topk: 0,
            em_mode: EmMode::LocalPermute,
            mask: false,
        }
    }
}
