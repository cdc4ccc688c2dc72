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

/// Bytes of a staging buffer from which on the vendor's ranks wait for ever (M2N 2.3 #1).
const UNUSABLE_BUFFER: u64 = 1 << 32;

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
    let argument = "NCCL_RESHARD_PACK_BUFFSIZES";
    let found = || format!("a request of {request} bytes");
    let buffer = buckets.holding(request).ok_or_else(|| {
        let profile = if buckets.implicit { "implicit default" } else { "largest configured" };
        let expected = format!("at most {} bytes ({profile})", buckets.largest());
        let rule = "a tile fits the largest staging buffer";
        BrokenRule::new(api, argument, rule, expected, found())
    })?;
    require(buffer < UNUSABLE_BUFFER, || {
        let rule = "a staging buffer is smaller than 2^32 bytes";
        let found = format!("a buffer of {buffer} bytes for {}", found());
        BrokenRule::new(api, argument, rule, UNUSABLE_BUFFER - 1, found).unchecked_by_the_vendor()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::m2n::environment::Buckets;

    /// Case M12.
    #[test]
    fn staging_buffers_are_smaller_than_2_to_the_32() {
        let with = |sizes: &[u64], request| {
            let buckets = Buckets { sizes: sizes.to_vec(), implicit: false };
            let environment = Environment { buckets, ..Environment::default() };
            staging("ncclReshard", &environment, request).map_err(|broken| broken.text)
        };
        let three_gib = 3 << 30;
        assert_eq!(with(&[three_gib], three_gib), Ok(()));
        assert_eq!(with(&[4096, 1 << 32], 4096), Ok(()));
        for request in [4097, 1 << 32] {
            let text = with(&[4096, 1 << 32], request).unwrap_err();
            let words = format!("a buffer of 4294967296 bytes for a request of {request} bytes");
            assert!(
                text.contains("NCCL_RESHARD_PACK_BUFFSIZES") && text.contains(&words),
                "{text}"
            );
        }
        assert!(with(&[4096, 1 << 32], (1 << 32) + 1).unwrap_err().contains("largest configured"));
    }
}
