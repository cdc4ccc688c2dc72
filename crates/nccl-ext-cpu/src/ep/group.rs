//! Groups: creation in the vendor's order (EP 2.1), resolved settings, destruction.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nccl_ep_sys::{ncclEpAlgorithm_t, ncclEpGroup_t, ncclEpGroupConfig_t};
use nccl_ext_core::raw::ncclComm_t;

use super::alloc::{Alloc, Block};
use super::environment::Environment;
use super::exchange::Exchange;
use super::mask::Masks;
use super::settings::{Algorithm, Settings, check_budget, check_groups, resolve};
use super::staging::Staging;
use super::structs;
use crate::driver::SM_COUNT;
use crate::entry::Scope;
use crate::nccl;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{COMM, Descriptor, KEYS, LineId, Member};

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
    masks: Option<Masks>,
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
    /// Low latency with `enable_mask` only.
    pub(super) masks: Option<&'a Masks>,
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
        let Built { member, settings, index, alloc, staging, masks, .. } = built;
        let masks = masks.as_ref();
        Ok(View { member, settings, index: *index, alloc, staging, masks })
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
    /// Rank 0's is everybody's.
    exchange: Option<Arc<Exchange>>,
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

/// Far above any model, far below what would not fit memory.
const MOST_EXPERTS: u32 = 1 << 20;

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
    require(config.num_experts <= MOST_EXPERTS, || {
        let rule = "this backend keeps counts for every expert";
        Refusal::usage(ret, "num_experts", rule, MOST_EXPERTS, config.num_experts)
    })?;
    require(config.max_num_sms <= SM_COUNT, || {
        let expected = format_args!("at most {SM_COUNT}").to_string();
        let rule = "the device has that many multiprocessors";
        Refusal::usage(ret, "max_num_sms", rule, expected, config.max_num_sms)
    })?;
    let settings = resolve(member.size(), algorithm, config, &environment);
    if algorithm == Algorithm::LowLatency {
        check_groups(&settings)?;
    }
    let index = member.next_group();
    member.barrier(&Meet { group: index })?;
    check_budget(config, &settings)?;
    let exchange = compare(member, index, settings)?;
    let masks = exchange.map(|exchange| Masks::new(exchange, settings.ranks));
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
    Ok(Built { member, settings, index, alloc, staging, masks, _blocks: blocks })
}

/// EP 2.1 #25. Other fields that differ are undefined in the vendor's library; here they would let
/// one rank write beyond what another has, so they are refused as well.
fn compare(member: &Member, index: u64, settings: Settings) -> Outcome<Option<Arc<Exchange>>> {
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
    let masked = settings.mask && settings.algorithm == Algorithm::LowLatency;
    let exchange = (masked && member.rank() == 0).then(|| Arc::new(Exchange::new(settings.ranks)));
    let descriptor = Compare { group: index, settings, exchange };
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
        Ok(peers[0].exchange.clone())
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
