//! What a transport can carry: the capacity limits of M2N 1.2, in the order of M2N 2.3 and 2.4.
//!
//! The model is one domain of all ranks. Where the vendor's library then needs a network with
//! device-side control (reversed meshes, fused groups, DIRECT and PIPE), it has one here.

use super::bounds;
use crate::m2n::descriptor::{Layout, Side};
use crate::m2n::environment::{CopyAlgorithm, Environment, LoadBalance, SMALLEST_REQUEST};
use crate::m2n::fault::{BrokenRule, require};
use crate::m2n::plan::{most_fed, sources_of, targets_of};

const MOST_TARGETS: usize = 64;
const MOST_SOURCES: usize = 16;
/// Of a destination shard, in one domain: one and its followers.
const MOST_REPLICAS: usize = 129;
const PIPE_FOLLOWERS: usize = 64;

/// Limits of PACK's path over host memory access in one domain.
const DIRECT_RANKS: usize = 64;
const DIRECT_SOURCES: usize = 32;
const DIRECT_TARGETS: usize = 64;

/// Bytes that PACK stages for tiles of so many bytes in all.
pub(crate) fn staged_bytes(src: u64, dst: u64) -> u64 {
    src.max(dst).max(SMALLEST_REQUEST)
}

/// PACK's staging buffer for a request (M2N 2.3 #4).
pub(crate) fn staging(
    api: &str,
    environment: &Environment,
    request: u64,
) -> Result<(), BrokenRule> {
    let buckets = &environment.buckets;
    require(buckets.holding(request).is_some(), || {
        let profile = if buckets.implicit { "implicit default" } else { "largest configured" };
        let expected = format!("at most {} bytes ({profile})", buckets.largest());
        let found = format!("a request of {request} bytes");
        let rule = "a tile fits the largest staging buffer";
        BrokenRule::new(api, "NCCL_RESHARD_PACK_BUFFSIZES", rule, expected, found)
    })
}

/// The peers of PACK (M2N 2.3 #6). `alone` is a transfer that is no part of a larger fused bin.
pub(crate) fn pack_peers(
    api: &str,
    layout: &Layout,
    ranks: usize,
    balance: LoadBalance,
    alone: bool,
) -> Result<(), BrokenRule> {
    let Layout { src, dst, .. } = layout;
    // M2N 3.6. What that path takes is within its limits.
    let direct = alone
        && src.start < dst.start
        && ranks <= DIRECT_RANKS
        && src.shards() <= DIRECT_SOURCES
        && dst.shards() <= DIRECT_TARGETS;
    if direct { Ok(()) } else { ring_peers(api, layout, balance) }
}

fn ring_peers(api: &str, layout: &Layout, balance: LoadBalance) -> Result<(), BrokenRule> {
    let Layout { src, dst, .. } = layout;
    for shard in 0..dst.shards() {
        let sources = sources_of(layout, shard);
        require(sources <= MOST_SOURCES, || {
            let place = format!("destination shard {shard}");
            peers(api, &place, MOST_SOURCES, format_args!("sources={sources}"))
        })?;
    }
    for shard in 0..src.shards() {
        let targets = targets_of(layout, shard);
        require(targets <= MOST_TARGETS, || {
            let place = format!("source shard {shard}");
            peers(api, &place, MOST_TARGETS, format_args!("targets={targets}"))
        })?;
    }
    let replicas = most_fed(balance, src, dst);
    require(replicas <= MOST_REPLICAS, || {
        peers(api, "destination replicas", MOST_REPLICAS, format_args!("fan-out {replicas}"))
    })
}

fn peers(api: &str, place: &str, most: usize, found: std::fmt::Arguments<'_>) -> BrokenRule {
    let rule = "a transfer has no more peers than its plan has room for";
    BrokenRule::new(api, place, rule, format_args!("at most {most}"), found)
}

/// DIRECT and PIPE (M2N 2.4 #5 to #10).
pub(crate) fn staged_transport(
    api: &str,
    algorithm: CopyAlgorithm,
    layout: &Layout,
    balance: LoadBalance,
) -> Result<(), BrokenRule> {
    if algorithm == CopyAlgorithm::Pipe {
        bounds::strictly_disjoint(layout)?;
    }
    for (name, side) in [("src", &layout.src), ("dst", &layout.dst)] {
        for (dim, &extent) in layout.shape(side).iter().enumerate() {
            require(extent > 0, || {
                let argument = format!("{name}->localShape");
                let found = format!("localShape[{dim}]=0");
                let rule = "this copy algorithm moves no empty tensors";
                BrokenRule::new(api, argument, rule, "positive extents", found)
            })?;
        }
    }
    bounds::same_tensor(api, layout)?;
    let fed = most_fed(balance, &layout.src, &layout.dst);
    for rank in layout.src.start.min(layout.dst.start)..layout.src.end().max(layout.dst.end()) {
        let of = |side: &Side| side.position(rank).map(|(shard, _)| shard);
        let place = format!("rank {rank}");
        // DIRECT sends to every replica itself, PIPE once to each shard.
        let copies = if algorithm == CopyAlgorithm::Direct { fed } else { 1 };
        let targets = of(&layout.src).map_or(0, |shard| targets_of(layout, shard) * copies);
        require(targets <= MOST_TARGETS, || {
            peers(api, &place, MOST_TARGETS, format_args!("targets={targets}"))
        })?;
        let sources = of(&layout.dst).map_or(0, |shard| sources_of(layout, shard));
        require(sources <= MOST_SOURCES, || {
            peers(api, &place, MOST_SOURCES, format_args!("sources={sources}"))
        })?;
    }
    require(fed <= MOST_REPLICAS, || {
        peers(api, "destination replicas", MOST_REPLICAS, format_args!("fan-out {fed}"))
    })?;
    require(algorithm != CopyAlgorithm::Pipe || fed <= PIPE_FOLLOWERS + 1, || {
        let followers = format!("followers={}", fed - 1);
        peers(api, "destination replicas", PIPE_FOLLOWERS, format_args!("{followers}"))
    })
}
