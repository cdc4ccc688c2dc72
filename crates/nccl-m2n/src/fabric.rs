//! What connects the ranks of a communicator.

use nccl_ext_core::raw::{NCCL_API_MAGIC, NCCL_VERSION_CODE, ncclCommProperties_t, ncclGinType_t};
use nccl_ext_core::{Backend, Comm, MemorySpace, Result, Version};

/// What the library finds out about a communicator before it chooses a path (M2N 3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Fabric {
    /// Consecutive ranks that reach each other's memory (an NVLink domain).
    pub domain_size: usize,
    /// Whether kernels can use the communicator.
    pub device_api: bool,
    /// Whether the host can put into a peer's memory.
    pub host_rma: bool,
    /// Whether kernels can start network transfers.
    pub gin: bool,
    /// Whether they can along rails.
    pub rail_gin: bool,
    /// NCCL's version.
    pub nccl: Version,
    /// The newest CUDA that the driver supports.
    pub driver: Version,
}

/// What the host path needs, and so the versions that planned fabrics have.
pub(crate) const HOST_PATH_NCCL: Version = Version::new(2, 30, 7);
pub(crate) const HOST_PATH_DRIVER: Version = Version::new(12, 5, 0);

/// Ranks of a domain where nothing says better (M2N 3.3).
const DOMAIN_FALLBACK: usize = 8;

impl Fabric {
    /// Domains of this many ranks, joined by a network that kernels can use. Versions are recent.
    #[must_use]
    pub fn domains_of(ranks: usize) -> Self {
        Self {
            domain_size: ranks.max(1),
            device_api: true,
            host_rma: true,
            gin: true,
            rail_gin: true,
            nccl: HOST_PATH_NCCL,
            driver: HOST_PATH_DRIVER,
        }
    }

    /// One domain of all ranks without such a network: one host with NVLink.
    #[must_use]
    pub fn one_host(ranks: usize) -> Self {
        Self { gin: false, rail_gin: false, ..Self::domains_of(ranks) }
    }

    /// What a communicator says. Ranks that share a process's memory, as those of a host backend
    /// do, are one domain in which every path works.
    ///
    /// # Errors
    /// What NCCL or the driver reports.
    #[doc(alias = "ncclCommQueryProperties")]
    #[doc(alias = "ncclTeamLsa")]
    pub fn of(comm: &Comm) -> Result<Self> {
        let backend = comm.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(Self::domains_of(comm.size()));
        }
        let mut properties = ncclCommProperties_t {
            size: size_of::<ncclCommProperties_t>(),
            magic: NCCL_API_MAGIC,
            version: NCCL_VERSION_CODE,
            ..ncclCommProperties_t::default()
        };
        let _device = comm.activate()?;
        let _calls = comm.lock();
        // SAFETY: the communicator lives, and `properties` outlives the call and says its size.
        unsafe {
            comm.call(
                "ncclCommQueryProperties",
                backend.nccl().ncclCommQueryProperties,
                (comm.as_raw(), &raw mut properties),
            )?;
        }
        // SAFETY: the communicator lives.
        let team = unsafe { (backend.nccl().ncclTeamLsa)(comm.as_raw()) };
        let domain_size = match usize::try_from(team.nRanks) {
            _ if properties.nLsaTeams == 1 => comm.size(),
            Ok(ranks) if ranks > 0 => ranks,
            _ => DOMAIN_FALLBACK,
        };
        let none = ncclGinType_t::NCCL_GIN_TYPE_NONE;
        let nccl = backend.libraries().iter().find(|library| library.name == "libnccl.so.2");
        Ok(Self {
            domain_size,
            device_api: properties.deviceApiSupport,
            host_rma: properties.hostRmaSupport,
            gin: properties.ginType != none,
            rail_gin: properties.railedGinType != none,
            nccl: nccl.map_or(Version::new(0, 0, 0), |library| library.version),
            driver: driver_version(backend),
        })
    }
}

/// The newest CUDA that the driver supports; 0.0.0 where it does not say.
fn driver_version(backend: Backend) -> Version {
    let mut code = 0;
    // SAFETY: `code` outlives the call.
    let asked = backend.driver().version.map(|call| unsafe { call(&mut code) });
    match (asked, u32::try_from(code)) {
        (Some(nccl_ext_core::driver::CuResult::SUCCESS), Ok(code)) => {
            Version::new(code / 1000, code % 1000 / 10, 0)
        }
        _ => Version::new(0, 0, 0),
    }
}
