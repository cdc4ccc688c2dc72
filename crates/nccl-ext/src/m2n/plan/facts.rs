//! What a plan says of every rank.

use std::ops::Range;

use nccl_m2n::plan::{Plan, Proof, Traffic};
use nccl_m2n::{Error, Layout};

use super::question::Question;
use crate::BrokenRule;

/// The side that a rank is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It is read from.
    Source,
    /// It is written to.
    Destination,
}

/// One rank on one side.
#[derive(Debug, Clone)]
pub struct RankFacts {
    /// The rank.
    pub rank: usize,
    /// Its side.
    pub role: Role,
    /// The block of the cut dimension that it holds.
    pub shard: usize,
    /// Which copy of it.
    pub replica: usize,
    /// What it holds of the tensor, by dimension.
    pub tile: Vec<Range<usize>>,
    /// Receivers, with bytes.
    pub sends: Vec<(usize, usize)>,
    /// Senders, with bytes.
    pub receives: Vec<(usize, usize)>,
}

impl RankFacts {
    /// Bytes that it sends.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.sends.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that it receives.
    #[must_use]
    pub fn received(&self) -> usize {
        self.receives.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Everything that is told of a plan.
#[derive(Debug)]
pub struct PlanFacts {
    /// The plan.
    pub plan: Plan,
    /// Whether the environment sets something that the library reads.
    pub from_environment: bool,
    /// Sources, then destinations.
    pub ranks: Vec<RankFacts>,
    /// Ranks that hold nothing.
    pub idle: Vec<usize>,
    /// Bytes by link and rank.
    pub traffic: Traffic,
    /// The limit of the library that stands against the call.
    pub refused: Option<BrokenRule>,
    /// Whether every destination byte is written once.
    pub proof: Result<Proof, String>,
}

impl PlanFacts {
    /// Asks the plan.
    #[must_use]
    pub fn new(question: &Question) -> Self {
        let plan = question.plan;
        let traffic = plan.traffic();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for lists in [&mut sends, &mut receives] {
            lists.resize_with(plan.conditions().ranks, Vec::new);
        }
        for link in &traffic.links {
            if let Some(list) = sends.get_mut(link.from) {
                list.push((link.to, link.bytes));
            }
            if let Some(list) = receives.get_mut(link.to) {
                list.push((link.from, link.bytes));
            }
        }
        let of = |lists: &[Vec<_>], rank: usize| lists.get(rank).cloned().unwrap_or_default();
        let (source, destination) = (plan.source(), plan.destination());
        let alone = source.mesh().ranks() == destination.mesh().ranks();
        let mut ranks = Vec::new();
        for (role, layout) in [(Role::Source, source), (Role::Destination, destination)] {
            let (is_source, sharding) = (role == Role::Source, layout.sharding());
            ranks.extend(layout.mesh().ranks().map(|rank| {
                let (shard, replica) = sharding.held_by(rank).unwrap_or((0, 0));
                // A communicator of one rank copies to itself; each side then has its part.
                let (sends, receives) = match is_source {
                    true if alone => (of(&sends, rank), Vec::new()),
                    false if alone => (Vec::new(), of(&receives, rank)),
                    _ => (of(&sends, rank), of(&receives, rank)),
                };
                let tile = tile(layout, shard);
                RankFacts { rank, role, shard, replica, tile, sends, receives }
            }));
        }
        let everybody = 0..plan.conditions().ranks;
        let idle = everybody.filter(|rank| !source.contains(*rank) && !destination.contains(*rank));
        Self {
            plan,
            from_environment: question.from_environment,
            ranks,
            idle: idle.collect(),
            traffic,
            refused: plan.accepted().err().map(refusal),
            proof: plan.prove().map_err(|error| error.to_string()),
        }
    }

    /// One side's ranks.
    pub(super) fn of(&self, role: Role) -> impl Iterator<Item = &RankFacts> {
        self.ranks.iter().filter(move |rank| rank.role == role)
    }

    /// Busiest and least busy source rank, and the mean, in bytes sent.
    pub(super) fn source_load(&self) -> (usize, usize, f64) {
        let sent: Vec<_> = self.of(Role::Source).map(RankFacts::sent).collect();
        let mean = sent.iter().sum::<usize>() as f64 / sent.len().max(1) as f64;
        let most = sent.iter().copied().max().unwrap_or(0);
        (most, sent.into_iter().min().unwrap_or(0), mean)
    }
}

/// What a shard is of the tensor.
fn tile(layout: &Layout, shard: usize) -> Vec<Range<usize>> {
    let cut = layout.sharding().dim;
    let extents = layout.local_shape();
    let range = |(dim, extent): (usize, &usize)| {
        let start = if dim == cut { shard * extent } else { 0 };
        start..start + extent
    };
    extents.iter().enumerate().map(range).collect()
}

/// Why the library does not take the call.
fn refusal(error: Error) -> BrokenRule {
    BrokenRule::try_from(error).unwrap_or_else(|error| {
        let (argument, rule) = ("call", "a call that the library takes");
        let (expected, found) = ("no error".into(), error.to_string());
        BrokenRule { argument, rule, expected, found, name: "", source: "" }
    })
}
