//! Groups: the ranks that exchange tokens, and what they share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use nccl_ep_sys::{EpApi, LIBRARY, ncclEpGroup_t};
use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::device::sm_count;
use nccl_ext_core::guard::Foreign;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Error, Refused, Result, Scope};

use crate::agreement;
use crate::allocator::{DeviceAllocator, Hooks};
use crate::config::{GroupConfig, HandleConfig, whole_milliseconds};
use crate::enums::{Algorithm, Layout, TopK, Validation};
use crate::geometry::Geometry;
use crate::mode::Mode;
use crate::rules::{self, group::Environment, group::Facts, handle};

/// Why a group cannot be used any more.
#[derive(Debug)]
enum Lost {
    /// An error that only this rank knew left it behind its peers.
    Diverged(Arc<Error>),
    /// A C++ exception left the library's objects in an unknown state.
    Poisoned(Arc<Error>),
}

/// What a group and its handles share.
pub(crate) struct Inner {
    pub(crate) comm: Comm,
    pub(crate) api: &'static EpApi,
    pub(crate) raw: ncclEpGroup_t,
    pub(crate) geometry: Geometry,
    pub(crate) validation: Validation,
    /// Whether it has a mask of active ranks.
    pub(crate) mask: bool,
    /// What ended this group's usefulness, if something did.
    lost: OnceLock<Lost>,
    /// The handle whose LL round is open; 0 for none.
    open_round: AtomicUsize,
    next_handle: AtomicUsize,
    pub(crate) had_handle: AtomicBool,
    /// Its address is the library's.
    allocator: Option<Hooks>,
    destroyed: bool,
}

// SAFETY: the library's group is not tied to a thread; every native call on it holds the
// communicator's lock, since the library has none of its own (EP 4.11).
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Inner {
    /// What a mask clean holds a round as, in place of a handle.
    pub(crate) const CLEAN: usize = usize::MAX;

    /// Refuses calls once this rank is out of step.
    pub(crate) fn in_step(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(Lost::Diverged(cause)) => Err(Error::Diverged { cause: Arc::clone(cause) }),
            Some(Lost::Poisoned(cause)) => Err(Error::Poisoned { cause: Arc::clone(cause) }),
        }
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
        if let Err(error @ Error::Exception { .. }) = &result
            && self.lost.set(Lost::Poisoned(Arc::new(error.clone()))).is_ok()
        {
            self.comm.fail(error);
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
            if alone && self.lost.set(Lost::Diverged(Arc::new(error.clone()))).is_ok() {
                self.comm.fail(error);
            }
        }
        result
    }

    /// Whether making a handle may grow low latency's buffer, which takes every rank (EP 3.4).
    pub(crate) fn grows_with_handles(&self) -> bool {
        self.geometry.algorithm == Algorithm::LowLatency && self.geometry.rdma_buffer == 0
    }

    /// Opens an LL round for a handle. One round a group is open at a time: the
    /// handles share the group's buffers and flags (EP 4.11).
    pub(crate) fn open_round(self: &Arc<Self>, handle: usize) -> Result<Round> {
        let order = Ordering::AcqRel;
        match self.open_round.compare_exchange(0, handle, order, Ordering::Acquire) {
            Ok(_) => Ok(Round { group: Arc::clone(self), handle }),
            Err(_) => Err(round_is_open()),
        }
    }

    /// Ends a handle's round, if it is the open one: also one whose step was leaked.
    pub(crate) fn close_round(&self, handle: usize) {
        let order = Ordering::AcqRel;
        let _ = self.open_round.compare_exchange(handle, 0, order, Ordering::Relaxed);
    }

    /// Whether a handle was ever made.
    pub(crate) fn had_handle(&self) -> bool {
        self.had_handle.load(Ordering::Acquire)
    }

    pub(crate) fn new_handle_id(&self) -> usize {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }
}

fn round_is_open() -> Error {
    Error::Busy {
        what: "the low-latency group",
        reason: "another handle's round is open; combine it or drop its step first".into(),
    }
}

/// An open LL round; closed when dropped.
pub(crate) struct Round {
    group: Arc<Inner>,
    handle: usize,
}

impl Drop for Round {
    fn drop(&mut self) {
        self.group.close_round(self.handle);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.destroyed {
            return;
        }
        // Destroying is a collective: here a peer may be gone, and a hang is worse than a leak.
        self.comm.doom();
        std::mem::forget(self.allocator.take()); // what it gave is leaked, and so is it
        tracing::warn!(
            rank = self.comm.rank(),
            "EP group dropped without destroy(): its native memory is leaked and its communicator \
             will be aborted"
        );
    }
}

/// Ranks that dispatch tokens to each other's experts.
///
/// End it with [`destroy`](Self::destroy) on every rank. A drop cannot talk to the peers: it leaks
/// the native group and marks the communicator for abort.
#[doc(alias = "ncclEpGroup_t")]
pub struct Group {
    pub(crate) inner: Arc<Inner>,
}

impl Group {
    /// Makes a group on all ranks of `comm`. Every rank calls it with the same configuration.
    ///
    /// The communicator's device is made current for the call and the caller's restored.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of group creation is broken or ranks disagree,
    /// [`Error::Unsupported`] when the backend has no libnccl_ep, [`Error::NvccNotFound`],
    /// [`Error::JitEnvironment`] and [`Error::CudaMajorMismatch`] when the library would not be able
    /// to compile its kernels ([`nccl_ext_core::jit`]), and what the library reports; in the last
    /// case what it had already made is leaked, since it cannot be destroyed safely (EP 2.1 #10).
    #[doc(alias = "ncclEpCreateGroup")]
    pub fn create(comm: &Comm, config: &GroupConfig) -> Result<Self> {
        Self::create_in(comm, config, Environment::read(), None)
    }

    /// As [`create`](Self::create), with the library's workspaces and handle memory from
    /// `allocator`.
    ///
    /// # Errors
    /// As [`create`](Self::create). What the allocator refuses is reported by the library: the
    /// vendor's throws ([`Error::Exception`]).
    #[doc(alias = "ncclEpAllocConfig_t")]
    pub fn create_with_allocator(
        comm: &Comm,
        config: &GroupConfig,
        allocator: Arc<dyn DeviceAllocator>,
    ) -> Result<Self> {
        Self::create_in(comm, config, Environment::read(), Some(Hooks::new(allocator)))
    }

    pub(crate) fn create_in(
        comm: &Comm,
        config: &GroupConfig,
        environment: Environment,
        allocator: Option<Hooks>,
    ) -> Result<Self> {
        let backend = comm.backend();
        let api = backend.extension::<EpApi>()?;
        let device_sms = sm_count(backend, comm.device())?.into();
        let ranks = comm.size() as u64;
        let lsa = load_store_ranks(comm);
        let facts = Facts { config, ranks, lsa, device_sms, environment };
        // The library aborts when it cannot compile. Only this rank knows whether it could, so the
        // verdict is exchanged like everything else: its peers must not wait for it.
        let compiler = backend.jit_env().map_or(Ok(()), |jit| jit.check());
        let agreed = agreement::on_configuration(comm, &facts, compiler.is_ok());
        compiler.and(agreed)?;
        // After the exchange: every rank now has the same facts, and so the same verdict.
        rules::check(rules::group::RULES, |broken| broken(&facts))?;
        let geometry = Geometry::new(&facts);

        let mut raw_config = config.to_raw();
        raw_config.timeout_ns = whole_milliseconds(config.timeout_ns);
        if let Some(allocator) = &allocator {
            raw_config.alloc = allocator.to_raw();
        }
        let mut raw = core::ptr::null_mut();
        let created = {
            let _device = comm.activate()?;
            let _calls = comm.lock();
            let arguments = (&raw mut raw, comm.as_raw(), &raw const raw_config);
            // SAFETY: `raw` and the configuration outlive the call, the communicator lives, its
            // device is current, and the rules above hold.
            unsafe { comm.call("ncclEpCreateGroup", api.ncclEpCreateGroup, arguments) }
        };
        if let Err(error) = created {
            // What was made before the error is leaked, and may still know the allocator.
            comm.fail(&error);
            std::mem::forget(allocator);
            return Err(error);
        }
        let library = backend.library(LIBRARY);
        tracing::info!(
            rank = comm.rank(),
            ranks = comm.size(),
            algorithm = %config.algorithm,
            experts = config.num_experts,
            backend = backend.name(),
            version = %library.map_or_else(String::new, |library| library.version.to_string()),
            path = ?library.and_then(|library| library.path.as_ref()),
            nccl = ?backend.libraries().first(),
            "EP group created"
        );
        Ok(Self {
            inner: Arc::new(Inner {
                comm: comm.clone(),
                api,
                raw,
                geometry,
                validation: config.validation,
                mask: config.enable_mask,
                lost: OnceLock::new(),
                open_round: AtomicUsize::new(0),
                next_handle: AtomicUsize::new(1),
                had_handle: AtomicBool::new(false),
                allocator,
                destroyed: false,
            }),
        })
    }

    /// The communicator.
    #[must_use]
    pub fn comm(&self) -> &Comm {
        &self.inner.comm
    }

    /// Experts of each rank.
    #[must_use]
    pub fn local_experts(&self) -> usize {
        self.inner.geometry.local_experts as usize
    }

    /// Which rank owns which expert.
    #[must_use]
    pub fn placement(&self) -> crate::Placement {
        let geometry = &self.inner.geometry;
        crate::Placement::blocks(geometry.local_experts as usize, geometry.ranks as usize)
    }

    /// Bytes of memory that a handle needs, for [`init_handle`](Self::init_handle) with memory of
    /// the caller's. Local.
    ///
    /// # Errors
    /// As [`init_handle`](Self::init_handle).
    #[doc(alias = "ncclEpHandleMemSize")]
    pub fn handle_mem_size(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk: TopK,
    ) -> Result<usize> {
        let inner = &self.inner;
        inner.in_step()?;
        let (_, topk) = self.checked(layout, config, topk)?;
        let raw_config = config.to_raw();
        let mut size = 0;
        let _device = inner.comm.activate()?;
        let _calls = inner.comm.lock();
        // SAFETY: the group lives, `size` and the configuration outlive the call, `topk` is
        // positive.
        unsafe {
            inner.call(
                "ncclEpHandleMemSize",
                inner.api.ncclEpHandleMemSize,
                (inner.raw, layout.into(), &raw const raw_config, &raw mut size, topk),
            )?;
        }
        Ok(size)
    }

    /// Resolves and checks what every way to make a handle has in common.
    pub(crate) fn checked(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk: TopK,
    ) -> Result<(Mode, i32)> {
        let (mode, topk) = handle::checked(&self.inner.geometry, layout, config, topk)?;
        Ok((mode, i32::try_from(topk).unwrap_or(i32::MAX)))
    }

    /// Ends the group. Every rank calls it: for low latency it is a barrier.
    ///
    /// # Errors
    /// [`Error::Busy`], with the group, while handles live. [`Error::Diverged`] when this rank is
    /// out of step; the native group is then leaked. Otherwise what the library reports.
    #[doc(alias = "ncclEpGroupDestroy")]
    pub fn destroy(self) -> Result<(), Refused<Self>> {
        let mut inner = match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner,
            Err(inner) => {
                let live = Arc::strong_count(&inner) - 1;
                let error = Error::Busy {
                    what: "the group",
                    reason: format!(
                        "{live} handle(s) or step(s) live; end them first, with Handle::destroy or by \
                         dropping them"
                    ),
                };
                return Err(Refused::kept(error, Self { inner }));
            }
        };
        inner.in_step().map_err(Refused::lost)?;
        let destroyed = {
            let scope = inner.comm.activate();
            let _device = scope.map_err(Refused::lost)?;
            let _calls = inner.comm.lock();
            // SAFETY: the last owner gives up a live group without handles.
            unsafe { inner.call("ncclEpGroupDestroy", inner.api.ncclEpGroupDestroy, (inner.raw,)) }
        };
        match destroyed {
            Ok(()) => inner.destroyed = true,
            Err(error) => return Err(Refused::lost(error)),
        }
        Ok(())
    }
}

/// Ranks that reach each other's memory; all of them where the backend does not say.
fn load_store_ranks(comm: &Comm) -> u64 {
    // SAFETY: the communicator lives.
    let team = unsafe { (comm.backend().nccl().ncclTeamLsa)(comm.as_raw()) };
    match u64::try_from(team.nRanks) {
        Ok(ranks) if ranks > 0 => ranks,
        _ => comm.size() as u64,
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("comm", &self.inner.comm)
            .field("algorithm", &self.inner.geometry.algorithm)
            .field("experts", &self.inner.geometry.experts)
            .field("lost", &self.inner.lost.get())
            .finish_non_exhaustive()
    }
}
