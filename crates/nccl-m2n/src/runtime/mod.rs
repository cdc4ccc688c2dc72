//! Runtimes: handles of the library.

mod agreed_calls;
mod cache_lifetime;
mod call_gate;
mod comm_identity;
mod comm_state;
mod finalize;
mod reshard;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use nccl_ext_core::rules::check;
use nccl_ext_core::{Backend, Comm, Error, OutOfStep, Result};
use nccl_m2n_sys::{LIBRARY, ncclM2nHandle_t};

pub(crate) use comm_state::CommState;
pub use finalize::finalize_default;

use crate::config::{Agreement, Config};
use crate::library::Library;
use crate::recording::refuse_in_group;
use crate::rules::config::{self, ConfigFacts};
use crate::rules::runtime::{self, CommunicatorFacts};
use crate::settings::Settings;
use cache_lifetime::CacheLifetime;

/// A handle of libnccl_m2n, through which tensors are resharded.
///
/// Create it before any other call: the library would otherwise make a default handle at the first
/// call, and not every part of it waits for that (M2N 4.3). The library reads its environment when
/// the first runtime is made; [`settings`](Self::settings) says what it read. Threads of one process
/// that are ranks may share one runtime, or have one each.
///
/// A runtime keeps every communicator that it was used with until [`finalize`](Self::finalize),
/// which all ranks call at the same point and before they destroy a communicator. On device
/// backends the library's caches last until the last runtime of the process is finalised, and so
/// do the communicators. A drop cannot talk to peers: it leaks the native handle and marks the
/// communicators for abort.
#[doc(alias = "ncclM2nHandle_t")]
#[doc(alias = "Handle")]
pub struct Runtime {
    pub(crate) library: Library,
    pub(crate) handle: ncclM2nHandle_t,
    pub(crate) agreement: Agreement,
    pub(crate) caches: &'static CacheLifetime,
    settings: Box<Settings>,
    comms: RwLock<Vec<Arc<CommState>>>,
    /// The native error after which the library must not be used.
    out_of_step: OutOfStep,
    finalized: bool,
}

// SAFETY: a handle is a number that the library looks up under its own lock (M2N 4.2).
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

impl Runtime {
    /// Makes a runtime. Every rank does, with the same configuration. Local.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a configuration that the library would ignore, [`Error::Unsupported`]
    /// when the backend has no libnccl_m2n, [`Error::Busy`] inside a group, and what the library
    /// reports.
    #[doc(alias = "ncclM2nInit")]
    #[doc(alias = "init")]
    pub fn new(backend: Backend, config: &Config) -> Result<Self> {
        Self::new_in(backend, config, Settings::from_env_over(config))
    }

    pub(crate) fn new_in(backend: Backend, config: &Config, settings: Settings) -> Result<Self> {
        let library = Library::of(backend)?;
        check(config::RULES, |broken| broken(&ConfigFacts { config }))?;
        refuse_in_group("making a runtime")?;
        let raw_config = config.to_c();
        let caches = CacheLifetime::of(backend);
        let mut handle = core::ptr::null_mut();
        caches.add_handle();
        // SAFETY: `handle` and the configuration outlive the call.
        let made = unsafe {
            let arguments = (&raw mut handle, &raw const raw_config);
            library.call("ncclM2nInit", library.api.ncclM2nInit, arguments)
        };
        made.inspect_err(|_| caches.end_handle(Vec::new()))?;
        let info = backend.library(LIBRARY);
        tracing::info!(
            backend = backend.name(),
            version = %info.map_or_else(String::new, |library| library.version.to_string()),
            path = ?info.and_then(|library| library.path.as_ref()),
            nccl = ?backend.libraries().first(),
            agreement = ?config.agreement,
            "M2N runtime created"
        );
        Ok(Self {
            library,
            handle,
            agreement: config.agreement,
            caches,
            settings: Box::new(settings),
            comms: RwLock::new(Vec::new()),
            out_of_step: OutOfStep::new(),
            finalized: false,
        })
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.library.backend
    }

    /// What the environment said when the runtime was made, over its configuration. A runtime that
    /// an earlier one of the process precedes is configured by that one.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The library's words for the last M2N error of this thread; empty when its last call
    /// succeeded. Errors of this crate carry them already.
    ///
    /// # Errors
    /// [`Error::Exception`].
    #[doc(alias = "ncclM2nGetLastError")]
    pub fn last_error(&self) -> Result<String> {
        self.library.last_error()
    }

    /// Refuses calls after a native error.
    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        self.out_of_step.check()
    }

    /// After a native error nobody knows whether the ranks are in step: the library asks to stop
    /// (M2N 4.5), but does not refuse later calls.
    pub(crate) fn poison(&self, error: &Error) {
        self.out_of_step.poison(error);
    }

    /// What is known of a communicator. Its first use registers it.
    pub(crate) fn comm_state(&self, comm: &Comm) -> Result<Arc<CommState>> {
        let raw = comm.as_raw();
        let known = self.comms.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = known.iter().find(|state| state.comm.as_raw() == raw) {
            return Ok(Arc::clone(state));
        }
        drop(known);
        let facts = CommunicatorFacts { runtime: self.backend(), communicator: comm.backend() };
        check(runtime::COMMUNICATOR, |broken| broken(&facts))?;
        self.caches.check_address(comm)?;
        let state = Arc::new(CommState::new(comm, &self.settings, self.caches.has_caches())?);
        let mut known = self.comms.write().unwrap_or_else(PoisonError::into_inner);
        known.push(Arc::clone(&state));
        Ok(state)
    }

    /// All that it was used with.
    pub(crate) fn comm_states(&self) -> Vec<Arc<CommState>> {
        self.comms.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_comm_states(&mut self) -> Vec<Arc<CommState>> {
        std::mem::take(self.comms.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("backend", &self.backend().name())
            .field("agreement", &self.agreement)
            .field("out_of_step", &self.out_of_step)
            .finish_non_exhaustive()
    }
}

/// The library's words for the last M2N error of this thread, also where another part of the
/// program made the call.
///
/// # Errors
/// [`Error::Unsupported`] when the backend has no libnccl_m2n.
#[doc(alias = "ncclM2nGetLastError")]
pub fn last_error(backend: Backend) -> Result<String> {
    Library::of(backend)?.last_error()
}
