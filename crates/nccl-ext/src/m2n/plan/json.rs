//! The answer as one JSON object, with exact bytes.

use std::ops::Range;

use nccl_m2n::Layout;
use serde::Serialize;

use super::facts::{PlanFacts, RankFacts, Role};
use super::table::balance;
use crate::BrokenRule;

#[derive(Serialize)]
struct Answer<'a> {
    tool: &'static str,
    version: &'static str,
    shape: Vec<usize>,
    data_type: &'static str,
    bytes: usize,
    source: Side,
    destination: Side,
    communicator: Communicator<'a>,
    transport: String,
    /// What would give the single-domain path.
    single_domain_would_take: Option<&'static str>,
    accepted: bool,
    refused: Option<&'a BrokenRule>,
    load_balance: &'static str,
    ranks: Vec<Rank>,
    links: Vec<Link>,
    bytes_within_domains: usize,
    bytes_between_domains: usize,
    busiest_rank_bytes: usize,
    lower_bound: Bound,
    coverage: Coverage<'a>,
    digest: String,
}

#[derive(Serialize)]
struct Side {
    mesh: Vec<usize>,
    start_rank: usize,
    placements: Vec<String>,
    tile: Vec<usize>,
    tile_bytes: usize,
    sharded_dimension: usize,
    blocks: usize,
    copies: usize,
}

#[derive(Serialize)]
struct Communicator<'a> {
    ranks: usize,
    domain: usize,
    network: bool,
    settings_from_environment: bool,
    idle_ranks: &'a [usize],
}

#[derive(Serialize)]
struct Rank {
    rank: usize,
    side: &'static str,
    block: usize,
    copy: usize,
    /// By dimension: first element, and the one after the last.
    tile: Vec<[usize; 2]>,
    sent_bytes: usize,
    received_bytes: usize,
    sends: Vec<Peer>,
    receives: Vec<Peer>,
}

#[derive(Serialize)]
struct Peer {
    rank: usize,
    bytes: usize,
}

#[derive(Serialize)]
struct Link {
    from: usize,
    to: usize,
    bytes: usize,
    within_domain: bool,
}

#[derive(Serialize)]
struct Bound {
    busiest_rank_bytes: usize,
    source_bytes: usize,
    destination_bytes: usize,
}

#[derive(Serialize)]
struct Coverage<'a> {
    proved: bool,
    transfers: Option<usize>,
    bytes: Option<usize>,
    problem: Option<&'a str>,
}

impl PlanFacts {
    /// One JSON object and a line break.
    #[must_use]
    pub fn json(&self) -> String {
        let plan = &self.plan;
        let (conditions, bound) = (plan.conditions(), plan.lower_bound());
        let link = |link: &nccl_m2n::plan::Link| Link {
            from: link.from,
            to: link.to,
            bytes: link.bytes,
            within_domain: link.local,
        };
        let proof = self.proof.as_ref();
        crate::output::json(&Answer {
            tool: "nccl-ext",
            version: env!("CARGO_PKG_VERSION"),
            shape: plan.source().global_shape().to_vec(),
            data_type: plan.source().data_type().name(),
            bytes: plan.source().global_bytes(),
            source: side(plan.source()),
            destination: side(plan.destination()),
            communicator: Communicator {
                ranks: conditions.ranks,
                domain: conditions.fabric.domain_size,
                network: conditions.fabric.gin,
                settings_from_environment: self.from_environment,
                idle_ranks: &self.idle,
            },
            transport: plan.transport().to_string(),
            single_domain_would_take: plan.obstacle().map(|obstacle| obstacle.advice()),
            accepted: self.refused.is_none(),
            refused: self.refused.as_ref(),
            load_balance: balance(plan.load_balance()),
            ranks: self.ranks.iter().map(rank).collect(),
            links: self.traffic.links.iter().map(link).collect(),
            bytes_within_domains: self.traffic.local_bytes,
            bytes_between_domains: self.traffic.remote_bytes,
            busiest_rank_bytes: self.traffic.busiest(),
            lower_bound: Bound {
                busiest_rank_bytes: bound.busiest(),
                source_bytes: bound.sent,
                destination_bytes: bound.received,
            },
            coverage: Coverage {
                proved: proof.is_ok(),
                transfers: proof.ok().map(|proof| proof.transfers),
                bytes: proof.ok().map(|proof| proof.bytes),
                problem: proof.err().map(String::as_str),
            },
            digest: plan.digest().to_string(),
        })
    }
}

fn side(layout: &Layout) -> Side {
    let sharding = layout.sharding();
    Side {
        mesh: layout.mesh().dims().to_vec(),
        start_rank: layout.mesh().start_rank(),
        placements: layout.placements().iter().map(ToString::to_string).collect(),
        tile: layout.local_shape().to_vec(),
        tile_bytes: layout.local_bytes(),
        sharded_dimension: sharding.dim,
        blocks: sharding.shards,
        copies: sharding.replicas,
    }
}

fn rank(rank: &RankFacts) -> Rank {
    let peers = |peers: &[(usize, usize)]| {
        peers.iter().map(|(rank, bytes)| Peer { rank: *rank, bytes: *bytes }).collect()
    };
    let ends = |range: &Range<usize>| [range.start, range.end];
    Rank {
        rank: rank.rank,
        side: if rank.role == Role::Source { "source" } else { "destination" },
        block: rank.shard,
        copy: rank.replica,
        tile: rank.tile.iter().map(ends).collect(),
        sent_bytes: rank.sent(),
        received_bytes: rank.received(),
        sends: peers(&rank.sends),
        receives: peers(&rank.receives),
    }
}
