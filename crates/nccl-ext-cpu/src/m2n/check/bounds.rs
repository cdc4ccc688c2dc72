//! Where a transfer meets the communicator and memory: checks 28 to 30 of M2N 2.1, and those that
//! the vendor's library leaves to its caller (M2N 2.7).

use crate::m2n::descriptor::{Layout, Side, Transfer};
use crate::m2n::fault::{BrokenRule, RESHARD, require};

/// Checks 28a to 28c.
pub(crate) fn intervals(layout: &Layout, ranks: usize) -> Result<(), BrokenRule> {
    let Layout { src, dst, .. } = layout;
    for (name, side) in [("src", src), ("dst", dst)] {
        require(side.end() <= ranks, || {
            let argument = format!("{name} mesh interval");
            let expected = format!("ranks of a communicator of size {ranks}");
            BrokenRule::new(
                RESHARD,
                argument,
                "the mesh is in the communicator",
                expected,
                show(side),
            )
        })?;
    }
    require(ranks == 1 || are_disjoint(src, dst), || not_disjoint(src, dst))
}

/// The same also for a communicator of one rank, as PIPE wants it (M2N 2.4 #5).
pub(crate) fn strictly_disjoint(layout: &Layout) -> Result<(), BrokenRule> {
    let Layout { src, dst, .. } = layout;
    require(are_disjoint(src, dst), || not_disjoint(src, dst))
}

fn are_disjoint(src: &Side, dst: &Side) -> bool {
    src.end() <= dst.start || dst.end() <= src.start
}

fn not_disjoint(src: &Side, dst: &Side) -> BrokenRule {
    let found = format!("src={}, dst={}", show(src), show(dst));
    BrokenRule::new(
        RESHARD,
        "mesh intervals",
        "the ranks of both sides are disjoint",
        "no common rank",
        found,
    )
}

fn show(side: &Side) -> String {
    format!("[{}, {})", side.start, side.end())
}

/// Checks 28d and 28e: what this rank alone can know.
pub(crate) fn buffers(api: &str, transfer: &Transfer, rank: usize) -> Result<(), BrokenRule> {
    let Transfer { layout, buffers } = transfer;
    let sides = [
        ("src", "source", &layout.src, buffers.src),
        ("dst", "destination", &layout.dst, buffers.dst),
    ];
    for (name, role, side, data) in sides {
        require(side.position(rank).is_none() || !data.is_null(), || {
            let argument = format!("{name}->dataPtr");
            let expected = format!("a buffer on active {role} rank {rank}");
            BrokenRule::new(api, argument, "every active rank has its tile", expected, "NULL")
        })?;
    }
    Ok(())
}

/// Check 29.
pub(crate) fn extents(api: &str, layout: &Layout) -> Result<(), BrokenRule> {
    for (name, side) in sides(layout) {
        require(side.global_extent(side.shard_dim).is_some(), || {
            let argument = format!("{name} shard dimension");
            let rule = "the global extent can be counted";
            let (extent, shards) = (side.shape[side.shard_dim], side.shards());
            let found = format!("{extent} * {shards}");
            BrokenRule::new(api, argument, rule, "at most SIZE_MAX", found)
        })?;
    }
    Ok(())
}

/// Check 30, and 1 of M2N 2.3, which zeros among the extents can hide from it.
pub(crate) fn sizes(api: &str, layout: &Layout) -> Result<(), BrokenRule> {
    let element = layout.dtype.size();
    for (name, side) in sides(layout) {
        let mut bytes = element;
        for (dim, &extent) in layout.shape(side).iter().enumerate() {
            bytes = bytes.checked_mul(extent).ok_or_else(|| overflow(api, name, "local", dim))?;
        }
        let last = layout.ndims - 1;
        require(side.shape[last].checked_mul(element).is_some(), || {
            overflow(api, name, "last-dimension", last)
        })?;
    }
    let mut bytes = element;
    for dim in 0..layout.ndims {
        bytes = layout
            .src
            .global_extent(dim)
            .and_then(|extent| bytes.checked_mul(extent))
            .ok_or_else(|| overflow(api, "source", "global", dim))?;
    }
    Ok(())
}

fn overflow(api: &str, side: &str, what: &str, dim: usize) -> BrokenRule {
    let argument = format!("{side} {what} byte size");
    let found = format!("overflow at dim {dim}");
    BrokenRule::new(api, argument, "the bytes can be counted", "at most SIZE_MAX", found)
}

fn sides(layout: &Layout) -> [(&'static str, &Side); 2] {
    [("source", &layout.src), ("destination", &layout.dst)]
}

/// Both sides describe one global tensor. Wherever they do, shards are even on both.
pub(crate) fn same_tensor(api: &str, layout: &Layout) -> Result<(), BrokenRule> {
    for dim in 0..layout.ndims {
        let (src, dst) = (layout.src.global_extent(dim), layout.dst.global_extent(dim));
        require(src == dst, || {
            let argument = format!("global shape at dim {dim}");
            let rule = "source and destination are one global tensor";
            let show = |extent: Option<usize>| extent.map_or("overflow".into(), |e| e.to_string());
            BrokenRule::new(api, argument, rule, show(src), show(dst))
        })?;
    }
    Ok(())
}

/// A tile that could lie in memory at all, with its pointers.
pub(crate) fn addressable(api: &str, layout: &Layout) -> Result<(), BrokenRule> {
    for (name, side) in sides(layout) {
        let bytes = layout.bytes(side);
        require(isize::try_from(bytes).is_ok(), || {
            let argument = format!("{name} local byte size");
            let rule = "a tile fits the address space";
            BrokenRule::new(api, argument, rule, isize::MAX, bytes).unchecked_by_the_vendor()
        })?;
    }
    Ok(())
}
