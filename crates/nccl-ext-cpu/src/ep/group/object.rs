//! The object behind an `ncclEpGroup_t`.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use nccl_ep_sys::ncclEpGroup_t;
use nccl_ext_core::raw::cudaStream_t;

use super::buffers::{SharedBuffers, Turn, Uses};
use crate::ep::allocator::{Allocator, Block};
use crate::ep::mask::Masks;
use crate::ep::settings::{Algorithm, Settings};
use crate::ep::staging::Staging;
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Member, SequenceId};

/// An EP group. An `ncclEpGroup_t` points to one, its handles own it too.
pub(crate) struct Group {
    pub(super) algorithm: Algorithm,
    /// `None` when creation failed after the out pointer was set.
    pub(super) built: Option<Built>,
    pub(crate) live_handles: AtomicUsize,
}

pub(super) struct Built {
    pub(super) member: Arc<Member>,
    pub(super) settings: Settings,
    pub(super) index: u64,
    pub(super) allocator: Allocator,
    pub(super) staging: Mutex<Staging>,
    pub(super) masks: Option<Masks>,
    pub(super) shared: Arc<SharedBuffers>,
    /// What creation allocates through the caller's functions. Nothing is kept in it.
    pub(super) _blocks: Vec<Block>,
}

/// A group that can be used.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The group itself, for work that outlives the call.
    group: &'a Arc<Group>,
    pub(crate) member: &'a Arc<Member>,
    pub(crate) settings: &'a Settings,
    /// The same on every rank.
    pub(crate) index: u64,
    pub(crate) allocator: &'a Allocator,
    pub(crate) staging: &'a Mutex<Staging>,
    /// Low latency with `enable_mask` only.
    pub(crate) masks: Option<&'a Masks>,
    pub(super) shared: &'a Arc<SharedBuffers>,
}

impl View<'_> {
    /// The sequence of this group's low-latency operations.
    pub(crate) fn sequence(&self) -> SequenceId {
        SequenceId::of_group(self.index)
    }

    /// Gives the stream an operation that uses what all operations of the group share. The work keeps
    /// the group alive; see [`queue::submit`].
    pub(crate) fn submit_operation(
        &self,
        stream: cudaStream_t,
        call: &'static str,
        uses: Uses,
        work: impl FnOnce(&View<'_>) -> Outcome + Send + 'static,
    ) -> Outcome {
        let (turn, group) = (Turn::take(self.shared), Arc::clone(self.group));
        let work = move || {
            let group = group.view()?;
            turn.begin(group.member, uses)?;
            work(&group)
        };
        let deferral = self.member.deferral();
        match self.settings.algorithm {
            Algorithm::LowLatency => queue::submit(deferral, stream, call, work),
            // Its ranks meet where those of the communicator's own collectives do, and so in the order
            // of all these calls, whatever their streams.
            Algorithm::HighThroughput => {
                queue::submit_in_turn(self.member.collectives(), deferral, stream, call, work)
            }
        }
    }

    /// The same, and waits for the operation.
    pub(crate) fn wait_for_operation(
        &self,
        stream: cudaStream_t,
        call: &'static str,
        uses: Uses,
        work: impl FnOnce(&View<'_>) -> Outcome + Send + 'static,
    ) -> Outcome {
        let (turn, group) = (Turn::take(self.shared), Arc::clone(self.group));
        queue::submit_and_wait(self.member.deferral(), stream, call, move || {
            let group = group.view()?;
            turn.begin(group.member, uses)?;
            work(&group)
        })
    }
}

impl Group {
    /// The group, unless it is what a failed creation left behind.
    pub(crate) fn view(self: &Arc<Self>) -> Outcome<View<'_>> {
        let built = self.built.as_ref().ok_or_else(|| {
            Refusal::usage(
                FailureClass::UndefinedBehaviour,
                "ep_group",
                "a group whose creation failed cannot be used",
                "a group that was created with success",
                "what a failed ncclEpCreateGroup left",
            )
        })?;
        let Built { member, settings, index, allocator, staging, masks, shared, .. } = built;
        let masks = masks.as_ref();
        Ok(View { group: self, member, settings, index: *index, allocator, staging, masks, shared })
    }
}

/// The group behind a handle, with one more owner.
///
/// # Safety
/// `group` is NULL or a live group of this backend.
pub(crate) unsafe fn shared(group: ncclEpGroup_t, class: FailureClass) -> Outcome<Arc<Group>> {
    require(!group.is_null(), || Refusal::null(class, "ep_group"))?;
    let raw: *const Group = group.cast_const().cast();
    // SAFETY: a live group is what `Arc::into_raw` gave in `create`.
    unsafe {
        Arc::increment_strong_count(raw);
        Ok(Arc::from_raw(raw))
    }
}
