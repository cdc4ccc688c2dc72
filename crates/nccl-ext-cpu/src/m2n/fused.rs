//! A bucket of a group whose entries run together (M2N 2.6, 4.3).

use super::balance;
use super::environment::Environment;
use super::exchange::{Entry, Published, Stop, exchange};
use super::fault::{Fault, Rule, require};
use super::single::Request;
use super::transfer::{Layout, Side};
use super::{bounds, limits, ranges, runtime, team};
use crate::entry::Scope;
use crate::world::Member;

/// What texts about entries of a fused bucket begin with.
const API: &str = "ncclM2nGroupEnd";

/// What became of a bucket.
pub(super) enum Fused {
    Done,
    /// It was told to go one by one.
    OneByOne,
}

/// Runs a bucket: requests with their indices in the group.
///
/// Each check looks at all entries before the next one begins, so nothing is issued when one
/// fails.
///
/// # Safety
/// The C contract of `ncclReshard` for each request.
pub(super) unsafe fn run(scope: &Scope, bucket: &[(usize, Request)]) -> Result<Fused, Stop<Fault>> {
    let mut described = Vec::with_capacity(bucket.len());
    for &(index, ref request) in bucket {
        described.push((index, request.describe(API).map_err(Stop::at(index))?));
    }
    let Some(&(last, Request { handle, comm, .. })) = bucket.last() else { return Ok(Fused::Done) };
    // What concerns the bucket as a whole is blamed on its last entry, as the vendor's library
    // does.
    let environment = runtime::acquire(API, handle).map_err(Stop::at(last))?;
    // SAFETY: this function's contract.
    let member = unsafe { team::ready(scope, comm) }.map_err(Stop::at(last))?;
    if environment.split_comm == Some(true) {
        return Ok(Fused::OneByOne);
    }
    let (rank, ranks) = (member.rank(), member.size());

    // The first thing that only this rank can know. Others wait for it unless they, too, find
    // something wrong, so it is shown to them when nothing else is.
    let mut alone: Option<Stop<Rule>> = None;
    let mut entries = Vec::with_capacity(described.len());
    let mut agreed = || {
        for &(index, transfer) in &described {
            bounds::intervals(&transfer.layout, ranks).map_err(Stop::at(index))?;
            if let Err(why) = bounds::buffers(API, &transfer, rank) {
                alone.get_or_insert(Stop { index, why });
            }
        }
        for &(index, transfer) in &described {
            let layout = &transfer.layout;
            sizes(layout).map_err(Stop::at(index))?;
            let mode = balance::mode(&environment, layout, ranks, true);
            entries.push(Entry { index, transfer, mode });
        }
        Ok(())
    };
    let mut outcome: Result<(), Stop<Rule>> = agreed();
    if outcome.is_ok() && alone.is_none() {
        alone = ranges::check_entries(API, &entries).err();
    }
    let mut bins = Vec::new();
    if outcome.is_ok() {
        bins = self::bins(&environment, entries);
        outcome = bins.first().map_or(Ok(()), |bin| bin.check(&environment, ranks));
    }
    match (outcome, &alone) {
        (Err(_), Some(own)) => return Err(own.clone().into()),
        (Err(stop), None) => return Err(stop.into()),
        (Ok(()), _) => {}
    }
    for bin in bins {
        // SAFETY: this function's contract.
        unsafe { bin.run(&environment, &member, alone.take())? };
    }
    Ok(Fused::Done)
}

/// Global shapes and overflow, which the fused path does look at.
fn sizes(layout: &Layout) -> Result<(), Rule> {
    bounds::extents(API, layout)?;
    bounds::same_tensor(API, layout)?;
    bounds::sizes(API, layout)?;
    bounds::addressable(API, layout)
}

/// Entries that one launch moves.
struct Bin {
    entries: Vec<Entry>,
    /// Bytes of all their tiles on a rank of each side.
    src: u64,
    dst: u64,
}

/// First fit by equal topology within a staging buffer; the largest bin runs first (M2N 4.3).
fn bins(environment: &Environment, entries: Vec<Entry>) -> Vec<Bin> {
    let bytes = |entry: &Entry| {
        let layout = &entry.transfer.layout;
        (layout.bytes(&layout.src) as u64, layout.bytes(&layout.dst) as u64)
    };
    let alone = |entry: &Entry| {
        let (src, dst) = bytes(entry);
        limits::staged_bytes(src, dst)
    };
    let largest = entries.iter().map(alone).max().unwrap_or(0);
    let buckets = &environment.buckets;
    let budget = buckets.holding(largest).unwrap_or(buckets.largest());
    let mut bins: Vec<Bin> = Vec::new();
    for entry in entries {
        let (src, dst) = bytes(&entry);
        let layout = &entry.transfer.layout;
        let fits = |bin: &&mut Bin| {
            let together =
                limits::staged_bytes(bin.src.saturating_add(src), bin.dst.saturating_add(dst));
            same_topology(&bin.entries[0].transfer.layout, layout) && together <= budget
        };
        match bins.iter_mut().find(fits) {
            Some(bin) => {
                bin.src += src;
                bin.dst += dst;
                bin.entries.push(entry);
            }
            None => bins.push(Bin { entries: vec![entry], src, dst }),
        }
    }
    bins.sort_by_key(|bin| std::cmp::Reverse(bin.staged_bytes()));
    bins
}

/// Meshes and placements are equal; shapes, ranks of the tensors and types need not be.
fn same_topology(a: &Layout, b: &Layout) -> bool {
    let of = |side: &Side| (side.start, side.dims, side.shard_axis, side.shard_dim);
    of(&a.src) == of(&b.src) && of(&a.dst) == of(&b.dst)
}

impl Bin {
    fn staged_bytes(&self) -> u64 {
        limits::staged_bytes(self.src, self.dst)
    }

    /// What PACK asks of a launch; the same on every rank.
    fn check(&self, environment: &Environment, ranks: usize) -> Result<(), Stop<Rule>> {
        let first = &self.entries[0];
        let stop = Stop::at(first.index);
        limits::staging(API, environment, self.staged_bytes()).map_err(stop)?;
        for &Entry { index, transfer, mode } in &self.entries {
            let layout = &transfer.layout;
            // The vendor's ranks find that their peers differ, except those that have none: these
            // go on, and the launch hangs (M2N 2.6 #10).
            require(layout.is_empty() == first.transfer.layout.is_empty(), || {
                let rule = "entries of one launch have the same peers";
                let expected = "empty tensors by themselves";
                let found = "an empty one beside one that is not";
                Rule::broken(API, "localShape", rule, expected, found).unchecked_there()
            })
            .and_then(|()| limits::pack_peers(API, layout, ranks, mode, self.entries.len() == 1))
            .map_err(Stop::at(index))?;
        }
        Ok(())
    }

    /// # Safety
    /// The C contract of `ncclReshard` for each entry.
    unsafe fn run(
        self,
        environment: &Environment,
        member: &Member,
        refused: Option<Stop<Rule>>,
    ) -> Result<(), Stop<Fault>> {
        self.check(environment, member.size())?;
        // SAFETY: this function's contract.
        unsafe { exchange(member, Published { entries: self.entries, refused }) }
    }
}
