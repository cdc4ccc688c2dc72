//! Rules of a call that are a function of what all ranks share (M2N 2.1, 2.3, 2.4, 2.7).

use nccl_ext_core::rules;

use crate::buckets::Buckets;
use crate::layout::Layout;
use crate::plan::{Obstacle, Plan, SINGLE_DOMAIN_SOURCES, Transport};
use crate::settings::CopyAlgorithm;

/// What the rules of a call look at.
pub(crate) struct Facts<'a> {
    pub(crate) plan: &'a Plan,
}

const SOURCES: usize = 16;
const TARGETS: usize = 64;
const REPLICAS: usize = 129;
const PIPE_REPLICAS: usize = 65;

impl Facts<'_> {
    fn ranks(&self) -> usize {
        self.plan.conditions().ranks
    }

    fn source(&self) -> &Layout {
        self.plan.source()
    }

    fn destination(&self) -> &Layout {
        self.plan.destination()
    }

    fn overlap(&self) -> bool {
        let (a, b) = (self.source().mesh().ranks(), self.destination().mesh().ranks());
        a.start < b.end && b.start < a.end
    }

    fn algorithm(&self) -> CopyAlgorithm {
        self.plan.conditions().settings.copy_algorithm
    }

    fn is_pack(&self) -> bool {
        self.algorithm() == CopyAlgorithm::Pack
    }

    fn is_pipe(&self) -> bool {
        self.algorithm() == CopyAlgorithm::Pipe
    }

    fn is_empty(&self) -> bool {
        self.source().local_shape().is_empty() || self.destination().local_shape().is_empty()
    }

    fn transport(&self) -> Transport {
        self.plan.transport()
    }

    fn off_the_single_domain(&self) -> bool {
        self.transport() != Transport::SingleDomain
    }

    /// The call would take the single-domain path but for this.
    fn only_obstacle(&self, obstacle: Obstacle) -> bool {
        self.plan.obstacle() == Some(obstacle)
    }

    fn buckets(&self) -> &Buckets {
        &self.plan.conditions().settings.buckets
    }

    fn most_staging(&self) -> String {
        let buckets = self.buckets();
        let what = if buckets.is_default() { "the implicit default, 2 GiB" } else { "the largest" };
        format!("at most {} bytes ({what})", buckets.largest())
    }

    fn domain_override(&self) -> usize {
        self.plan.conditions().settings.destination_domain.unwrap_or(0)
    }

    fn domain(&self) -> usize {
        self.plan.conditions().fabric.domain_size
    }

    fn has_network(&self) -> bool {
        let fabric = &self.plan.conditions().fabric;
        match self.transport() {
            Transport::SingleDomain => true,
            Transport::Kernel => fabric.gin,
            Transport::Direct | Transport::Pipe => fabric.rail_gin,
        }
    }

    fn way_without_network(&self) -> String {
        let advice = self.plan.obstacle().map_or("the single-domain path", Obstacle::advice);
        format!("a GIN-capable network; or {advice}")
    }

    fn signals(&self) -> Option<i32> {
        let ctas = self.plan.conditions().settings.ctas;
        self.source().mesh().size().checked_mul(ctas).and_then(|n| i32::try_from(n).ok())
    }
}

rules! {
    /// Whether two layouts are sides of one reshard on a communicator.
    PAIR over Facts {
        "call.source-in-communicator" on "source": "the source mesh lies inside the communicator"
            ("M2N 2.1 #28a", Uniform)
            |f| f.source().mesh().ranks().end > f.ranks()
                => (format!("ranks below {}", f.ranks()),
                    format!("{:?}", f.source().mesh().ranks()));
        "call.destination-in-communicator" on "destination":
            "the destination mesh lies inside the communicator" ("M2N 2.1 #28b", Uniform)
            |f| f.destination().mesh().ranks().end > f.ranks()
                => (format!("ranks below {}", f.ranks()),
                    format!("{:?}", f.destination().mesh().ranks()));
        "call.disjoint" on "destination":
            "source and destination meshes share no rank, unless the communicator has one alone"
            ("M2N 2.1 #28c", Uniform)
            |f| f.ranks() > 1 && f.overlap()
                => (format!("ranks outside of {:?}", f.source().mesh().ranks()),
                    format!("{:?}", f.destination().mesh().ranks()));
        "call.pipe-disjoint" on "destination": "PIPE copies to other ranks only"
            ("M2N 2.4 #5", Uniform)
            |f| f.is_pipe() && f.overlap()
                => ("disjoint meshes, or NCCL_RESHARD_COPY_ALGORITHM unset",
                    format!("{:?} on both sides", f.destination().mesh().ranks()));
        "call.dimensions" on "destination": "both sides have equally many dimensions"
            ("M2N 2.1 #19", Uniform)
            |f| f.source().local_shape().len() != f.destination().local_shape().len()
                => (f.source().local_shape().len(), f.destination().local_shape().len());
        "call.data-type" on "destination": "both sides have one element type"
            ("M2N 2.1 #20", Uniform)
            |f| f.source().data_type() != f.destination().data_type()
                => (f.source().data_type(), f.destination().data_type());
        "call.global-shape" on "destination":
            "both sides are layouts of one global tensor (the library delivers stale bytes \
             otherwise)" ("M2N 2.7", Uniform)
            |f| f.source().global_shape() != f.destination().global_shape()
                => (format!("{:?}, as the source", f.source().global_shape()),
                    format!("{:?}", f.destination().global_shape()));
    }
}

rules! {
    /// Whether the library takes a call.
    LIMITS over Facts {
        "call.staging" on "local_shape":
            "a tile fits the largest staging bucket; NCCL_RESHARD_PACK_BUFFSIZES names larger ones"
            ("M2N 2.3 #4", Uniform)
            |f| f.is_pack() && f.plan.staging_bytes() > f.buckets().largest()
                => (f.most_staging(), format!("{} bytes", f.plan.staging_bytes()));
        "call.signals" on "source": "signals, one a source rank and thread block, fit a C int"
            ("M2N 2.3 #2", Uniform)
            |f| f.is_pack() && f.signals().is_none()
                => (format!("at most {}", i32::MAX),
                    format!("{} ranks", f.source().mesh().size()));
        "call.not-empty" on "local_shape": "DIRECT and PIPE move no empty tensors"
            ("M2N 2.4 #6", Uniform)
            |f| !f.is_pack() && f.is_empty()
                => ("extents of at least 1",
                    format!("{} and {}", f.source().local_shape(), f.destination().local_shape()));
        "call.single-domain-sources" on "source":
            "the single-domain path reads a tile from at most 32 source shards"
            ("M2N 2.3 #6", Uniform)
            |f| f.only_obstacle(Obstacle::SourceShards)
                && f.plan.most_sources() > SINGLE_DOMAIN_SOURCES
                => (format!("at most {SINGLE_DOMAIN_SOURCES} sources"), f.plan.most_sources());
        "call.sources" on "source": "off the single-domain path a tile comes from at most 16 shards"
            ("M2N 2.3 #6, 2.4 #9", Uniform)
            |f| f.off_the_single_domain() && f.plan.most_sources() > SOURCES
                => (format!("at most {SOURCES} sources for {}", f.transport()),
                    f.plan.most_sources());
        "call.targets" on "destination":
            "off the single-domain path a tile goes to at most 64 targets"
            ("M2N 2.3 #6, 2.4 #9", Uniform)
            |f| f.off_the_single_domain() && f.plan.most_targets() > TARGETS
                => (format!("at most {TARGETS} targets for {}", f.transport()),
                    f.plan.most_targets());
        "call.replicas" on "destination":
            "a destination shard has at most 129 replicas in a domain" ("M2N 2.3 #6, 2.4 #9", Uniform)
            |f| f.off_the_single_domain() && f.plan.most_replicas() > REPLICAS
                => (format!("at most {REPLICAS}"), f.plan.most_replicas());
        "call.pipe-replicas" on "destination":
            "PIPE passes a tile on to at most 64 replicas in a domain" ("M2N 2.4 #10", Uniform)
            |f| f.is_pipe() && f.plan.most_replicas() > PIPE_REPLICAS
                => (format!("at most {PIPE_REPLICAS} replicas"), f.plan.most_replicas());
        "call.pipe-peers" on "destination":
            "PIPE sends to as many ranks of other domains as NCCL_RESHARD_PIPE_GIN_PEERS_PER_SLOT \
             says" ("M2N 2.4 #10", Uniform)
            |f| f.is_pipe()
                && f.plan.most_remote_peers() > f.plan.conditions().settings.pipe_peers
                => (format!("at most {}", f.plan.conditions().settings.pipe_peers),
                    f.plan.most_remote_peers());
        "call.domain-override" on "NCCL_RESHARD_DST_DOMAIN_SIZE":
            "an override of the domain's size stays within the NVLink domain"
            ("M2N 2.3 #6", Uniform)
            |f| f.off_the_single_domain() && f.domain_override() > f.domain()
                => (format!("at most {}", f.domain()), f.domain_override());
        "call.network" on "communicator":
            "only the single-domain path works without a network that kernels can use (GIN)"
            ("M2N 3.6", Uniform)
            |f| !f.has_network()
                => (f.way_without_network(),
                    format!("{} for {} to {}", f.transport(), f.source(), f.destination()));
    }
}
