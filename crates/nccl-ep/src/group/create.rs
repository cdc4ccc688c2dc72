//! Making groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use nccl_ep_sys::{EpApi, LIBRARY};
use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::{Comm, LastUse, OutOfStep, Result};

use super::{Group, SharedGroup};
#[cfg(doc)]
use crate::Error;
use crate::agreement;
use crate::allocator::{DeviceAllocator, PinnedAllocator};
use crate::config::{GroupConfig, whole_milliseconds};
use crate::environment::Environment;
use crate::geometry::{Geometry, GroupFacts};
use crate::rules;

impl Group {
    /// Makes a group on all ranks of `comm`. Every rank calls it with the same configuration.
    ///
    /// The communicator's device is made current for the call and the caller's restored.
    ///
    /// # Errors
    /// - [`Error::Invalid`]: a rule of group creation is broken, or ranks disagree.
    /// - [`Error::Unsupported`]: the backend has no libnccl_ep.
    /// - [`Error::NvccNotFound`], [`Error::JitEnvironment`], [`Error::CudaMajorMismatch`]: the
    ///   library could not compile its kernels ([`nccl_ext_core::jit`]).
    /// - [`Error::Native`], [`Error::Exception`]: the library failed. What it had already made is
    ///   leaked, since it cannot be destroyed safely (EP 2.1 #10).
    /// - [`Error::Driver`], and on the CPU backend the errors of other ranks.
    #[doc(alias = "ncclEpCreateGroup")]
    pub fn create(comm: &Comm, config: &GroupConfig) -> Result<Self> {
        Self::create_in(comm, config, Environment::read(), None)
    }

    /// Makes a group whose workspaces and handle memory come from `allocator`.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create). Memory that the allocator refuses is an error of the
    /// library: the vendor's throws ([`Error::Exception`]).
    #[doc(alias = "ncclEpAllocConfig_t")]
    pub fn create_with_allocator(
        comm: &Comm,
        config: &GroupConfig,
        allocator: Arc<dyn DeviceAllocator>,
    ) -> Result<Self> {
        Self::create_in(comm, config, Environment::read(), Some(PinnedAllocator::new(allocator)))
    }

    pub(crate) fn create_in(
        comm: &Comm,
        config: &GroupConfig,
        environment: Environment,
        allocator: Option<PinnedAllocator>,
    ) -> Result<Self> {
        let backend = comm.backend();
        let api = backend.extension::<EpApi>()?;
        let device_sms = comm.device().sm_count()?.into();
        let ranks = comm.size() as u64;
        let lsa = load_store_ranks(comm);
        let facts = GroupFacts { config, ranks, lsa, device_sms, environment };
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
            shared: Arc::new(SharedGroup {
                comm: comm.clone(),
                api,
                raw,
                geometry,
                validation: config.validation,
                mask: config.enable_mask,
                last_use: LastUse::new(comm.device()),
                out_of_step: OutOfStep::new(),
                open_round: AtomicUsize::new(0),
                next_handle: AtomicUsize::new(1),
                had_handle: AtomicBool::new(false),
                allocator,
                destroyed: false,
            }),
        })
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
