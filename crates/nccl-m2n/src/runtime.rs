//! Runtimes: handles of the library.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use nccl_ext_core::rules::{RuleInfo, Violation};
use nccl_ext_core::{Backend, Comm, Error, OutOfStep, Refused, Result, Scope, env_value};
use nccl_m2n_sys::{LIBRARY, ncclM2nHandle_t};

use crate::config::{Agreement, Config};
use crate::epoch::Epoch;
use crate::group;
use crate::member::Member;
use crate::native::Library;
use crate::rules;
use crate::settings::Settings;

/// A handle of libnccl_m2n, through which tensors are resharded.
///
/// Made explicitly, before anything else: the library would otherwise make a default one at the
/// first call, and not every part of it waits for that (M2N 4.3). It reads its environment then;
/// [`settings`](Self::settings) says what it read. The threads of a process that are ranks may
/// share one runtime, or have one each.
///
/// It keeps every communicator that it was used with until [`finalize`](Self::finalize), which all
/// ranks call at the same point and before they destroy a communicator. On device backends the
/// library's caches outlive a runtime while another one of the process lives, and so the
/// communicators are kept until the last is finalised. A drop cannot talk to peers: it leaves the
/// native handle behind and marks the communicators for abort.
#[doc(alias = "ncclM2nHandle_t")]
#[doc(alias = "Handle")]
pub struct Runtime {
    pub(crate) library: Library,
    pub(crate) handle: ncclM2nHandle_t,
    pub(crate) agreement: Agreement,
    pub(crate) epoch: &'static Epoch,
    settings: Box<Settings>,
    members: RwLock<Vec<Arc<Member>>>,
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
        let settings = Settings::read(config, env_value::variable);
        Self::new_in(backend, config, settings)
    }

    pub(crate) fn new_in(backend: Backend, config: &Config, settings: Settings) -> Result<Self> {
        let library = Library::of(backend)?;
        rules::check(rules::config::RULES, |broken| broken(&rules::config::Facts { config }))?;
        group::refuse_inside("making a runtime")?;
        let raw_config = config.to_c();
        let epoch = Epoch::of(backend);
        let mut handle = core::ptr::null_mut();
        epoch.begin();
        // SAFETY: `handle` and the configuration outlive the call.
        let made = unsafe {
            let arguments = (&raw mut handle, &raw const raw_config);
            library.call("ncclM2nInit", library.api.ncclM2nInit, arguments)
        };
        made.inspect_err(|_| epoch.end(Vec::new()))?;
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
            epoch,
            settings: Box::new(settings),
            members: RwLock::new(Vec::new()),
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
    pub(crate) fn usable(&self) -> Result<()> {
        self.out_of_step.check()
    }

    /// After a native error nobody knows whether the ranks are in step: the library asks to stop
    /// (M2N 4.5), but does not refuse later calls.
    pub(crate) fn poison(&self, error: &Error) {
        self.out_of_step.poison(error);
    }

    /// What is known of a communicator. Its first use registers it.
    pub(crate) fn member(&self, comm: &Comm) -> Result<Arc<Member>> {
        let raw = comm.as_raw();
        let known = self.members.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(member) = known.iter().find(|member| member.comm.as_raw() == raw) {
            return Ok(Arc::clone(member));
        }
        drop(known);
        if comm.backend() != self.backend() {
            let rule = "a communicator belongs to the runtime's backend";
            let info =
                RuleInfo::new("runtime.backend", "communicator", rule, "M2N 1.2", Scope::Uniform);
            let [expected, found] = [self.backend(), comm.backend()]
                .map(|backend| format!("one of backend {}", backend.name()));
            return Err(info.broken(Violation::new(expected, found)));
        }
        self.epoch.admit(comm)?;
        let member = Arc::new(Member::new(comm, &self.settings, self.epoch.has_caches())?);
        let mut known = self.members.write().unwrap_or_else(PoisonError::into_inner);
        known.push(Arc::clone(&member));
        Ok(member)
    }

    /// All that it was used with.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_members(&mut self) -> Vec<Arc<Member>> {
        std::mem::take(self.members.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the runtime. Every rank calls it at the same point, before it destroys a communicator.
    /// Waits for the devices' work: the library wants everything complete.
    ///
    /// # Errors
    /// [`Error::Busy`], with the runtime, inside a group. [`Error::Poisoned`] or
    /// [`Error::Diverged`] when an error left this rank out of step: the runtime is then given up as
    /// by a drop. Otherwise what the driver and the library report.
    #[doc(alias = "ncclM2nFinalize")]
    pub fn finalize(mut self) -> Result<(), Refused<Self>> {
        if let Err(error) = group::refuse_inside("finalising a runtime") {
            return Err(Refused::kept(error, self));
        }
        self.end().map_err(Refused::lost)
    }

    fn end(&mut self) -> Result<()> {
        self.usable()?;
        let members = self.members.get_mut().unwrap_or_else(PoisonError::into_inner);
        for member in members.iter() {
            member.in_step()?;
            member.comm.activate()?.synchronize()?;
        }
        self.finalize_native()
    }

    fn finalize_native(&mut self) -> Result<()> {
        self.finalized = true;
        let comms = self.take_members().iter().map(|member| member.comm.clone()).collect();
        // SAFETY: a live handle, given up here: no call of this runtime runs meanwhile, and the
        // work of earlier ones is complete. The communicators live, and those of runtimes that
        // were finalised before are held by the epoch.
        let result = unsafe {
            let api = self.library.api;
            self.library.call("ncclM2nFinalize", api.ncclM2nFinalize, (self.handle,))
        };
        match &result {
            Ok(()) => self.epoch.end(comms),
            Err(_) => self.epoch.give_up(comms),
        }
        result
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.finalized {
            return;
        }
        if !self.epoch.has_caches() {
            // Nothing is left of earlier calls, so this is local.
            if let Err(error) = self.finalize_native() {
                tracing::error!(%error, "an M2N handle was leaked");
            }
            return;
        }
        let comms: Vec<Comm> =
            self.take_members().iter().map(|member| member.comm.clone()).collect();
        // Finalising talks to the peers: here one may be gone, and a hang is worse than a leak.
        comms.iter().for_each(Comm::mark_for_abort);
        tracing::warn!(
            communicators = comms.len(),
            "M2N runtime dropped without finalize(): its native handle is leaked and its \
             communicators will be aborted"
        );
        self.epoch.give_up(comms);
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

/// Finalises the library's default handle, which calls without a handle share: code in other
/// languages may have made it. This crate never does. Repeating it is fine.
///
/// # Errors
/// [`Error::Unsupported`] when the backend has no libnccl_m2n, [`Error::Busy`] inside a group, and
/// what the library reports.
///
/// # Safety
/// No other code in the process uses the default handle meanwhile, and the work of its calls is
/// complete. When no [`Runtime`] lives, every rank does this at the same point, and the
/// communicators of those calls are still there.
#[doc(alias = "ncclM2nFinalize")]
#[doc(alias = "finalize")]
pub unsafe fn finalize_default(backend: Backend) -> Result<()> {
    let library = Library::of(backend)?;
    group::refuse_inside("finalising the default handle")?;
    let finalize = library.api.ncclM2nFinalize;
    // SAFETY: NULL names the default handle; the rest is this function's contract.
    unsafe { library.call("ncclM2nFinalize", finalize, (core::ptr::null_mut(),)) }
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
