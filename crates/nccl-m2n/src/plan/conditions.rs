//! What a plan depends on besides the two layouts.

use nccl_ext_core::{Comm, Result};

use crate::fabric::Fabric;
use crate::settings::Settings;

/// How a call stands to the others of its group (M2N 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Grouping {
    /// A call of its own, or an entry that the library issues like one.
    #[default]
    Alone,
    /// In a fused group, and the only entry of its topology.
    Only,
    /// Fused with other entries into one kernel.
    Fused,
}

/// Communicator, network and settings under which a call is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Conditions {
    /// Ranks of the communicator.
    pub ranks: usize,
    /// What connects them.
    pub fabric: Fabric,
    /// The library's settings.
    pub settings: Settings,
    /// Whether the call is fused with others of a group.
    pub grouping: Grouping,
}

impl Conditions {
    /// Any fabric, with the library's default settings.
    #[must_use]
    pub fn new(ranks: usize, fabric: Fabric) -> Self {
        Self { ranks, fabric, settings: Settings::default(), grouping: Grouping::Alone }
    }

    /// One host: all ranks in one NVLink domain, no network.
    #[must_use]
    pub fn one_host(ranks: usize) -> Self {
        Self::new(ranks, Fabric::one_host(ranks))
    }

    /// Domains of `domain_size` consecutive ranks, joined by a network that kernels can use.
    #[must_use]
    pub fn domains(ranks: usize, domain_size: usize) -> Self {
        Self::new(ranks, Fabric::domains_of(domain_size))
    }

    /// What a communicator and the process environment say.
    ///
    /// # Errors
    /// As [`Fabric::of`].
    pub fn of(comm: &Comm) -> Result<Self> {
        let settings = Settings::from_env();
        Ok(Self { settings, ..Self::new(comm.size(), Fabric::of(comm)?) })
    }

    /// With these settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// As an entry of a group.
    #[must_use]
    pub fn grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }
}
