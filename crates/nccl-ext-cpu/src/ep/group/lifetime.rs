//! Groups: creation in the vendor's order (EP 2.1), and destruction.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nccl_ep_sys::{ncclEpGroup_t, ncclEpGroupConfig_t};
use nccl_ext_core::raw::ncclComm_t;

use super::buffers::SharedBuffers;
use super::check;
use super::meeting::{CreateGroup, DestroyGroup, compare};
use super::object::{Built, Group, shared};
use crate::entry::Scope;
use crate::ep::allocator::Allocator;
use crate::ep::environment::Environment;
use crate::ep::mask::Masks;
use crate::ep::settings::{Algorithm, check_budget};
use crate::ep::structs;
use crate::nccl;
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Member, SequenceId};

/// # Safety
/// The C contract of `ncclEpCreateGroup`.
pub(crate) unsafe fn create(
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
    let algorithm = check::algorithm(&config)?;
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

/// Meets the other ranks, compares settings with them, and allocates.
fn build(
    member: &Arc<Member>,
    algorithm: Algorithm,
    config: &ncclEpGroupConfig_t,
) -> Outcome<Built> {
    let environment = Environment::read();
    let settings = check::settings(member.size(), algorithm, config, &environment)?;
    let index = member.next_group();
    member.barrier(&CreateGroup { group: index })?;
    check_budget(config, &settings)?;
    let mailboxes = compare(member, index, settings)?;
    let masks = mailboxes.map(|mailboxes| Masks::new(mailboxes, settings.ranks));
    check::modes(&environment)?;
    let bitmap = settings
        .max_tokens
        .saturating_mul(settings.ranks)
        .saturating_mul((settings.ranks * settings.local_experts).div_ceil(8));
    let sizes: &[usize] = match algorithm {
        Algorithm::LowLatency => &[32 << 20],
        Algorithm::HighThroughput => &[32 << 20, 32, bitmap],
    };
    let allocator = Allocator(config.alloc);
    let blocks =
        sizes.iter().map(|&bytes| allocator.allocate(bytes)).collect::<Outcome<Vec<_>>>()?;
    if algorithm == Algorithm::LowLatency {
        member.open(SequenceId::of_group(index));
    }
    let blocks = blocks.into_iter().flatten().collect();
    let (member, staging) = (Arc::clone(member), Mutex::default());
    let shared = Arc::new(SharedBuffers::new());
    Ok(Built { member, settings, index, allocator, staging, masks, shared, _blocks: blocks })
}

/// # Safety
/// `group` is NULL or a live group of this backend, not used by any other thread.
pub(crate) unsafe fn destroy(scope: &Scope, group: ncclEpGroup_t) -> Outcome {
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
            // Waits: for the device first, and then for the other ranks (EP 2.5).
            queue::drain(view.member.deferral())?;
            if low {
                view.member.barrier(&DestroyGroup { group: view.index })?;
                view.member.close(view.sequence());
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
