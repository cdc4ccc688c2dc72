//! Whether the library takes a call: its tables, its staging, and what its path needs (M2N 1.2,
//! 2.3, 2.4, 3.6).

use nccl_ext_core::rules;

use crate::fabric::Fabric;
use crate::layout::Layout;
use crate::plan::transport::{Obstacle, SINGLE_DOMAIN_SOURCES, Transport};
use crate::settings::{CopyAlgorithm, Settings};

/// What the library's limits look at.
pub(crate) struct LimitFacts<'a> {
    pub(crate) source: &'a Layout,
    pub(crate) destination: &'a Layout,
    pub(crate) settings: &'a Settings,
    pub(crate) fabric: &'a Fabric,
    pub(crate) transport: Transport,
    /// What keeps the call from the single-domain path.
    pub(crate) obstacle: Option<Obstacle>,
    pub(crate) loads: &'a dyn PlanLoads,
}

/// What a plan asks of the library's tables. Counted when a rule looks: it can take long, and
/// earlier rules bound it.
pub(crate) trait PlanLoads {
    /// Bytes of staging of one rank.
    fn staging_bytes(&self) -> usize;
    /// Most source shards of one tile.
    fn most_sources(&self) -> usize;
    /// Most targets of one tile.
    fn most_targets(&self) -> usize;
    /// Most replicas of one shard in one domain that one rank serves.
    fn most_replicas(&self) -> usize;
    /// Most ranks of other domains that one rank sends to.
    fn most_remote_peers(&self) -> usize;
}

/// Bytes of a staging slot from which on the released library waits for ever.
const UNUSABLE_SLOT: u64 = 1 << 32;
const SOURCES: usize = 16;
const TARGETS: usize = 64;
const REPLICAS: usize = 129;
const PIPE_REPLICAS: usize = 65;

impl LimitFacts<'_> {
    fn is_pack(&self) -> bool {
        self.settings.copy_algorithm == CopyAlgorithm::Pack
    }

    fn is_pipe(&self) -> bool {
        self.settings.copy_algorithm == CopyAlgorithm::Pipe
    }

    fn is_empty(&self) -> bool {
        self.source.local_shape().is_empty() || self.destination.local_shape().is_empty()
    }

    fn off_the_single_domain(&self) -> bool {
        self.transport != Transport::SingleDomain
    }

    /// The call would take the single-domain path but for this.
    fn only_obstacle(&self, obstacle: Obstacle) -> bool {
        self.obstacle == Some(obstacle)
    }

    fn most_staging(&self) -> String {
        let buckets = self.settings.buckets;
        let what = if buckets.is_default() { "the implicit default, 2 GiB" } else { "the largest" };
        format!("at most {} bytes ({what})", buckets.largest())
    }

    /// Bytes of the slot that the library takes for this call.
    fn staging_slot(&self) -> usize {
        self.settings.buckets.budget(self.loads.staging_bytes())
    }

    fn domain_override(&self) -> usize {
        self.settings.destination_domain.unwrap_or(0)
    }

    fn has_network(&self) -> bool {
        match self.transport {
            Transport::SingleDomain => true,
            Transport::Kernel => self.fabric.gin,
            Transport::Direct | Transport::Pipe => self.fabric.rail_gin,
        }
    }

    fn way_without_network(&self) -> String {
        let advice = self.obstacle.map_or("the single-domain path", Obstacle::advice);
        format!("a GIN-capable network; or {advice}")
    }

    fn signals(&self) -> Option<i32> {
        let signals = self.source.mesh().size().checked_mul(self.settings.ctas);
        signals.and_then(|n| i32::try_from(n).ok())
    }
}

rules! {
    /// Checked of a plan, before the library is asked to carry it out.
    RULES over LimitFacts {
        "call.staging" on "local_shape":
            "a tile fits the largest staging bucket; NCCL_RESHARD_PACK_BUFFSIZES names larger ones"
            ("M2N 2.3 #4", Uniform)
            |f| f.is_pack() && f.loads.staging_bytes() > f.settings.buckets.largest()
                => (f.most_staging(), format!("{} bytes", f.loads.staging_bytes()));
        "call.staging-slot" on "NCCL_RESHARD_PACK_BUFFSIZES":
            "the staging slot of a call is smaller than 2^32 bytes (the library waits for ever \
             otherwise); name a smaller size, or shard the tensor over more ranks"
            ("M2N 2.3 #1", Uniform)
            |f| f.is_pack() && f.staging_slot() as u64 >= UNUSABLE_SLOT
                => (format!("at most {} bytes", UNUSABLE_SLOT - 1),
                    format!("a slot of {} bytes for {} bytes",
                        f.staging_slot(), f.loads.staging_bytes()));
        "call.signals" on "source": "signals, one a source rank and thread block, fit a C int"
            ("M2N 2.3 #2", Uniform)
            |f| f.is_pack() && f.signals().is_none()
                => (format!("at most {}", i32::MAX),
                    format!("{} ranks", f.source.mesh().size()));
        "call.not-empty" on "local_shape": "DIRECT and PIPE move no empty tensors"
            ("M2N 2.4 #6", Uniform)
            |f| !f.is_pack() && f.is_empty()
                => ("extents of at least 1",
                    format!("{} and {}", f.source.local_shape(), f.destination.local_shape()));
        "call.single-domain-sources" on "source":
            "the single-domain path reads a tile from at most 32 source shards"
            ("M2N 2.3 #6", Uniform)
            |f| f.only_obstacle(Obstacle::SourceShards)
                && f.loads.most_sources() > SINGLE_DOMAIN_SOURCES
                => (format!("at most {SINGLE_DOMAIN_SOURCES} sources"), f.loads.most_sources());
        "call.sources" on "source": "off the single-domain path a tile comes from at most 16 shards"
            ("M2N 2.3 #6, 2.4 #9", Uniform)
            |f| f.off_the_single_domain() && f.loads.most_sources() > SOURCES
                => (format!("at most {SOURCES} sources for {}", f.transport),
                    f.loads.most_sources());
        "call.targets" on "destination":
            "off the single-domain path a tile goes to at most 64 targets"
            ("M2N 2.3 #6, 2.4 #9", Uniform)
            |f| f.off_the_single_domain() && f.loads.most_targets() > TARGETS
                => (format!("at most {TARGETS} targets for {}", f.transport),
                    f.loads.most_targets());
        "call.replicas" on "destination":
            "a destination shard has at most 129 replicas in a domain" ("M2N 2.3 #6, 2.4 #9", Uniform)
            |f| f.off_the_single_domain() && f.loads.most_replicas() > REPLICAS
                => (format!("at most {REPLICAS}"), f.loads.most_replicas());
        "call.pipe-replicas" on "destination":
            "PIPE passes a tile on to at most 64 replicas in a domain" ("M2N 2.4 #10", Uniform)
            |f| f.is_pipe() && f.loads.most_replicas() > PIPE_REPLICAS
                => (format!("at most {PIPE_REPLICAS} replicas"), f.loads.most_replicas());
        "call.pipe-peers" on "destination":
            "PIPE sends to as many ranks of other domains as NCCL_RESHARD_PIPE_GIN_PEERS_PER_SLOT \
             says" ("M2N 2.4 #10", Uniform)
            |f| f.is_pipe() && f.loads.most_remote_peers() > f.settings.pipe_peers
                => (format!("at most {}", f.settings.pipe_peers), f.loads.most_remote_peers());
        "call.domain-override" on "NCCL_RESHARD_DST_DOMAIN_SIZE":
            "an override of the domain's size stays within the NVLink domain"
            ("M2N 2.3 #6", Uniform)
            |f| f.off_the_single_domain() && f.domain_override() > f.fabric.domain_size
                => (format!("at most {}", f.fabric.domain_size), f.domain_override());
        "call.network" on "communicator":
            "only the single-domain path works without a network that kernels can use (GIN)"
            ("M2N 3.6", Uniform)
            |f| !f.has_network()
                => (f.way_without_network(),
                    format!("{} for {} to {}", f.transport, f.source, f.destination));
    }
}
