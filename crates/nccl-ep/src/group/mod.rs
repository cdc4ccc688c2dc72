//! Groups: the ranks that exchange tokens, and what they share.

mod create;
mod destroy;
mod round;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nccl_ep_sys::{EpApi, ncclEpGroup_t};
use nccl_ext_core::guard::Foreign;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Error, LastUse, OutOfStep, Result, Scope, Stream, Use};

pub(crate) use self::round::Round;
use crate::allocator::PinnedAllocator;
use crate::enums::{Algorithm, Validation};
use crate::geometry::Geometry;
use crate::rules::tensors::{self, TensorFacts};

/// What a group and its handles share.
pub(crate) struct SharedGroup {
    pub(crate) comm: Comm,
    pub(crate) api: &'static EpApi,
    pub(crate) raw: ncclEpGroup_t,
    pub(crate) geometry: Geometry,
    pub(crate) validation: Validation,
    /// Whether it has a mask of active ranks.
    pub(crate) mask: bool,
    /// Calls of a group and its handles share the library's buffers (EP 4.11). Used under the
    /// communicator's lock.
    pub(crate) last_use: LastUse,
    /// Diverged by an error that only this rank knew, or poisoned by a C++ exception.
    out_of_step: OutOfStep,
    /// The handle whose LL round is open; 0 for none.
    open_round: AtomicUsize,
    next_handle: AtomicUsize,
    pub(crate) had_handle: AtomicBool,
    /// Its address is the library's.
    allocator: Option<PinnedAllocator>,
    destroyed: bool,
}

// SAFETY: the library's group is not tied to a thread; every native call on it holds the
// communicator's lock, since the library has none of its own (EP 4.11).
unsafe impl Send for SharedGroup {}
// SAFETY: as above.
unsafe impl Sync for SharedGroup {}

impl SharedGroup {
    /// Refuses calls once this rank is out of step, or the communicator aborted.
    pub(crate) fn in_step(&self) -> Result<()> {
        self.comm.refuse_if_aborted()?;
        self.out_of_step.check()
    }

    /// Enqueues a native call on `stream`, after the group's earlier calls and the earlier uses of what
    /// it is given. The caller holds the communicator's lock, and the device is current.
    pub(crate) fn enqueue<T>(
        &self,
        stream: Stream<'_>,
        uses: &[Use<'_>],
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let own = [Use::write(Some(&self.last_use))];
        self.comm.enqueue(stream, &own, || Use::around(stream, uses, call))
    }

    /// Makes a native call through the guard and turns what comes back into the best error, on the
    /// call's thread. A C++ exception poisons the group.
    ///
    /// # Safety
    /// As for the call.
    pub(crate) unsafe fn call<F>(
        &self,
        name: &'static str,
        function: F,
        arguments: F::Arguments,
    ) -> Result<()>
    where
        F: Foreign<Output = ncclResult_t>,
    {
        // SAFETY: this function's contract; the communicator lives as long as this share of it.
        let result = unsafe { self.comm.call(name, function, arguments) };
        if let Err(error @ Error::Exception { .. }) = &result {
            self.out_of_step.poison_and_tell(&self.comm, error);
        }
        result
    }

    /// Passes on the result of this rank's part in a collective. An error that only this rank
    /// knows means that its peers wait in vain: the group is lost and they are told, where the
    /// backend can.
    pub(crate) fn collective<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let alone = matches!(
                error,
                Error::Invalid { scope: Scope::Local, .. }
                    | Error::Native { .. }
                    | Error::Driver { .. }
            );
            if alone {
                self.out_of_step.diverge_and_tell(&self.comm, error);
            }
        }
        result
    }

    /// Checks the tensors of a call, and that they and the stream are on the group's device.
    pub(crate) fn check_tensors(
        &self,
        facts: &TensorFacts<'_, '_>,
        stream: Stream<'_>,
    ) -> Result<()> {
        self.comm.check_stream(stream)?;
        tensors::check(facts, |argument, view| {
            self.comm.check_memory(argument, &view.buffer)?;
            if self.validation == Validation::Data && !view.shape.contains(&0) {
                self.comm.check_device_pointer(argument, &view.buffer)?;
            }
            Ok(())
        })
    }

    /// Whether its memory comes from an allocator of the application's.
    pub(crate) fn has_allocator(&self) -> bool {
        self.allocator.is_some()
    }

    /// Whether making a handle may grow low latency's buffer, which takes every rank (EP 3.4).
    pub(crate) fn grows_with_handles(&self) -> bool {
        self.geometry.algorithm == Algorithm::LowLatency && self.geometry.rdma_buffer == 0
    }

    /// Keeps rounds out while a handle is made that may grow low latency's buffer: growth frees what
    /// a round or a staged call uses (EP 3.4).
    pub(crate) fn round_of_creation(self: &Arc<Self>) -> Result<Option<Round>> {
        if self.grows_with_handles() { self.keep_rounds_out().map(Some) } else { Ok(None) }
    }

    /// Whether a handle was ever made.
    pub(crate) fn had_handle(&self) -> bool {
        self.had_handle.load(Ordering::Acquire)
    }

    pub(crate) fn new_handle_id(&self) -> usize {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }
}

/// Ranks that dispatch tokens to each other's experts. (In `nccl-m2n` a `Group` records reshards that
/// the library runs as one.)
///
/// End it with [`destroy`](Self::destroy) on every rank. A drop cannot talk to the peers: it leaks
/// the native group and marks the communicator for abort.
#[doc(alias = "ncclEpGroup_t")]
pub struct Group {
    pub(crate) shared: Arc<SharedGroup>,
}

impl Group {
    /// The communicator.
    #[must_use]
    pub fn comm(&self) -> &Comm {
        &self.shared.comm
    }

    /// Experts of each rank.
    #[must_use]
    pub fn local_experts(&self) -> usize {
        self.shared.geometry.local_experts as usize
    }

    /// Which rank owns which expert.
    #[must_use]
    pub fn placement(&self) -> crate::Placement {
        let geometry = &self.shared.geometry;
        crate::Placement::blocks(geometry.local_experts as usize, geometry.ranks as usize)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("comm", &self.shared.comm)
            .field("algorithm", &self.shared.geometry.algorithm)
            .field("experts", &self.shared.geometry.experts)
            .field("out_of_step", &self.shared.out_of_step)
            .finish_non_exhaustive()
    }
}
