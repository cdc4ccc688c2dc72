//! The path that a call is expected to take (M2N 3.6).

use std::fmt;

use super::conditions::{Conditions, Grouping};
use crate::fabric::{HOST_PATH_DRIVER, HOST_PATH_NCCL};
use crate::layout::Layout;
use crate::settings::CopyAlgorithm;

/// How the bytes of a call travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Transport {
    /// PACK, puts by the hosts within one domain: each source sends to each of its destinations.
    SingleDomain,
    /// PACK, a kernel: one put to each destination shard, then along domains of replicas.
    Kernel,
    /// DIRECT: each source sends to each of its destinations.
    Direct,
    /// PIPE: as the kernel, in chunks.
    Pipe,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SingleDomain => "single-domain PACK",
            Self::Kernel => "kernel PACK",
            Self::Direct => "DIRECT",
            Self::Pipe => "PIPE",
        })
    }
}

/// Why a call does not take the single-domain path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Obstacle {
    /// `NCCL_RESHARD_COPY_ALGORITHM` asks for another.
    CopyAlgorithm,
    /// The entry is fused with others of its group.
    Fused,
    /// The communicator has no device API.
    DeviceApi,
    /// The hosts cannot put into peers' memory.
    HostRma,
    /// The communicator spans domains.
    Domains,
    /// The driver is older than CUDA 12.5.
    Driver,
    /// NCCL is older than 2.30.7.
    Nccl,
    /// The source does not begin below the destination.
    Order,
    /// More than 64 ranks.
    Ranks,
    /// More than 32 source shards.
    SourceShards,
    /// More than 64 destination shards.
    DestinationShards,
}

impl Obstacle {
    /// What stands in the way, and what would take it away.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::CopyAlgorithm => "unset NCCL_RESHARD_COPY_ALGORITHM",
            Self::Fused => {
                "set NCCL_RESHARD_SPLIT_COMM=1, or make the calls outside of a group: entries of \
                 one topology are fused"
            }
            Self::DeviceApi => "use a communicator with device API support",
            Self::HostRma => "use a communicator with host RMA support",
            Self::Domains => "use a communicator inside one NVLink domain",
            Self::Driver => "use a driver for CUDA 12.5 or newer",
            Self::Nccl => "use NCCL 2.30.7 or newer",
            Self::Order => {
                "give the source mesh the lower ranks (split a communicator in that order)"
            }
            Self::Ranks => "use a communicator of at most 64 ranks",
            Self::SourceShards => "use at most 32 source shards",
            Self::DestinationShards => "use at most 64 destination shards",
        }
    }
}

/// Limits of the single-domain path.
const MOST_RANKS: usize = 64;
pub(crate) const SINGLE_DOMAIN_SOURCES: usize = 32;
const SINGLE_DOMAIN_TARGETS: usize = 64;

/// The path, and the first thing that keeps the call from the single-domain one.
pub(super) fn expected(
    source: &Layout,
    destination: &Layout,
    conditions: &Conditions,
) -> (Transport, Option<Obstacle>) {
    match conditions.settings.copy_algorithm {
        CopyAlgorithm::Direct => return (Transport::Direct, Some(Obstacle::CopyAlgorithm)),
        CopyAlgorithm::Pipe => return (Transport::Pipe, Some(Obstacle::CopyAlgorithm)),
        CopyAlgorithm::Pack => {}
    }
    match obstacle(source, destination, conditions) {
        None => (Transport::SingleDomain, None),
        found => (Transport::Kernel, found),
    }
}

/// The number of shards comes last: it alone then decides.
fn obstacle(source: &Layout, destination: &Layout, conditions: &Conditions) -> Option<Obstacle> {
    let fabric = &conditions.fabric;
    let (from, to) = (source.sharding(), destination.sharding());
    let met = [
        (Obstacle::Fused, conditions.grouping != Grouping::Fused),
        (Obstacle::DeviceApi, fabric.device_api),
        (Obstacle::HostRma, fabric.host_rma),
        (Obstacle::Domains, fabric.domain_size >= conditions.ranks),
        (Obstacle::Driver, fabric.driver >= HOST_PATH_DRIVER),
        (Obstacle::Nccl, fabric.nccl >= HOST_PATH_NCCL),
        (Obstacle::Order, from.start_rank < to.start_rank),
        (Obstacle::Ranks, conditions.ranks <= MOST_RANKS),
        (Obstacle::SourceShards, from.shards <= SINGLE_DOMAIN_SOURCES),
        (Obstacle::DestinationShards, to.shards <= SINGLE_DOMAIN_TARGETS),
    ];
    met.into_iter().find(|(_, met)| !met).map(|(obstacle, _)| obstacle)
}
