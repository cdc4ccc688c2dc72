//! Ranks compare what they are about to ask for, before anybody asks.

use std::sync::Arc;

use nccl_ext_core::rules::{RuleInfo, Violation};
use nccl_ext_core::{DataType, Error, Result, Scope};

use crate::layout::Layout;
use crate::member::Member;
use crate::mesh::Mesh;
use crate::placement::Placement;
use crate::plan::{
    CONDITION_WORDS, Digest, LAYOUT_WORDS, condition_difference, condition_words, layout_words,
    of_calls,
};
use crate::rules;

/// What one rank is about to do.
pub(crate) struct Intent<'a> {
    pub(crate) digest: Digest,
    pub(crate) calls: &'a [Call],
    /// Why it will not.
    pub(crate) failed: Option<&'a Error>,
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) source: Layout,
    pub(crate) destination: Layout,
    /// The first call of the list that it may be fused with; its own number without one.
    pub(crate) bucket: u64,
}

impl Call {
    /// A call that is not part of a group.
    pub(crate) fn alone(source: Layout, destination: Layout) -> Self {
        Self { source, destination, bucket: 0 }
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        let layouts = [&self.source, &self.destination].map(layout_words);
        std::iter::once(self.bucket).chain(layouts.into_iter().flatten())
    }
}

const FINE: u64 = 0;
/// The bucket and both layouts.
const CALL_WORDS: usize = 2 * LAYOUT_WORDS + 1;

/// Exchanges intents. Collective: the verdict, the inner result, is an error on every rank of the
/// communicator, or on none. It is the own failure, [`Error::PeerFailed`] for that of the first
/// other rank that has one, or [`Error::DigestMismatch`] when ranks mean different things.
///
/// # Errors
/// What the exchange reports; there is no verdict then.
pub(crate) fn reach(member: &Member, intent: &Intent<'_>) -> Result<Result<()>> {
    let comm = &member.comm;
    let failed = || intent.failed.map_or(Ok(()), |error| Err(error.clone()));
    if comm.size() == 1 {
        return Ok(failed());
    }
    let Digest([first, second]) = intent.digest;
    // Verdict, digest, number of calls.
    let own = [verdict(intent.failed), first, second, intent.calls.len() as u64];
    let all = comm.all_gather_words(&own)?;
    let ranks: Vec<&[u64]> = all.iter().collect();
    if let Some(rank) = ranks.iter().position(|words| words[0] != FINE) {
        let error = Arc::new(explain(ranks[rank][0]));
        return Ok(failed().and(Err(Error::PeerFailed { rank, error })));
    }
    let Some(rank) = ranks.iter().position(|words| words[1..] != ranks[0][1..]) else {
        return Ok(Ok(()));
    };
    let most = ranks.iter().map(|words| words[3]).max().unwrap_or(0);
    let first_difference = compare(member, intent, usize::try_from(most).unwrap_or(0), rank)?;
    Ok(Err(Error::DigestMismatch { rank, first_difference }))
}

/// 0 when all is well, else which rule is broken: 2 and up by its place in the table.
fn verdict(failed: Option<&Error>) -> u64 {
    let Some(error) = failed else { return FINE };
    let error = match error {
        Error::Entry { error, .. } => error,
        other => other,
    };
    rules::all().position(|rule| rule.is_cause_of(error)).map_or(1, |place| place as u64 + 2)
}

/// What another rank's verdict says.
fn explain(verdict: u64) -> Error {
    let place = verdict.checked_sub(2).and_then(|place| usize::try_from(place).ok());
    let rule = place.and_then(|place| rules::all().nth(place));
    let rule = rule.unwrap_or_else(|| {
        let words = "a rank fails for reasons of its own";
        RuleInfo::new("call.own-reasons", "call", words, "M2N 4.5", Scope::Local)
    });
    rule.broken(Violation::new("what its own error says", "something else"))
}

/// Sends everything, and finds where `rank` and rank 0 part. Collective.
fn compare(member: &Member, intent: &Intent<'_>, most: usize, rank: usize) -> Result<String> {
    let mut own = Vec::with_capacity(CONDITION_WORDS + most * CALL_WORDS);
    own.extend(condition_words(&member.conditions));
    intent.calls.iter().for_each(|call| own.extend(call.words()));
    own.resize(CONDITION_WORDS + most * CALL_WORDS, 0);
    let all = member.comm.all_gather_words(&own)?;
    Ok(part(all.of(0), all.of(rank), rank))
}

fn part(zero: &[u64], other: &[u64], rank: usize) -> String {
    let say = |what: &str, a: &str, b: &str| format!("{what}: {a} on rank 0, {b} on rank {rank}");
    let (conditions, calls) = zero.split_at(CONDITION_WORDS);
    let (their_conditions, their_calls) = other.split_at(CONDITION_WORDS);
    if let Some((what, a, b)) = condition_difference(conditions, their_conditions) {
        return say(what, &a.to_string(), &b.to_string());
    }
    let pairs = calls.chunks_exact(CALL_WORDS).zip(their_calls.chunks_exact(CALL_WORDS));
    let Some((entry, (a, b))) = pairs.enumerate().find(|(_, (a, b))| a != b) else {
        return say("calls", "others", "others");
    };
    let what = format!("call {entry}");
    match (decode_call(a), decode_call(b)) {
        (Some(a), Some(b)) => {
            let found = of_calls((&a.source, &a.destination), (&b.source, &b.destination));
            let with = |call: &Call| format!("call {}", call.bucket);
            found.map_or_else(
                || say(&format!("{what}, fused by runtime and stream with"), &with(&a), &with(&b)),
                |found| say(&format!("{what}, {}", found.what), &found.first, &found.second),
            )
        }
        (None, _) => say(&what, "no call", "a call"),
        (_, None) => say(&what, "a call", "no call"),
    }
}

fn decode_call(words: &[u64]) -> Option<Call> {
    let (bucket, layouts) = words.split_first()?;
    let (source, destination) = layouts.split_at_checked(LAYOUT_WORDS)?;
    let (source, destination) = (decode(source)?, decode(destination)?);
    Some(Call { source, destination, bucket: *bucket })
}

/// The layout that these words came from; `None` for those of no call.
fn decode(words: &[u64]) -> Option<Layout> {
    let words: Vec<usize> =
        words.iter().map(|word| usize::try_from(*word).ok()).collect::<Option<_>>()?;
    let &[mesh_dims, d0, d1, start, p0, p1, dims, s0, s1, s2, data_type] = &*words else {
        return None;
    };
    let mesh = Mesh::new([d0, d1].get(..mesh_dims)?, start).ok()?;
    let placement = |raw: usize| match raw.checked_sub(1) {
        None => Some(Placement::Replicate),
        Some(dim) => i32::try_from(dim).ok().map(Placement::Shard),
    };
    let placements = [placement(p0)?, placement(p1)?];
    let data_type = DataType::ALL.iter().find(|known| **known as usize == data_type)?;
    let shape = [s0, s1, s2];
    Layout::new(mesh, placements.get(..mesh_dims)?, shape.get(..dims)?, *data_type).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Placement::{Replicate, Shard};
    use crate::plan::Conditions;

    fn layout(dims: &[usize], start: usize, placements: &[Placement], shape: &[usize]) -> Layout {
        let mesh = Mesh::new(dims, start).unwrap();
        Layout::new(mesh, placements, shape, DataType::Bfloat16).unwrap()
    }

    #[test]
    fn layouts_survive_the_words() {
        for layout in [
            layout(&[4], 0, &[Shard(0)], &[3]),
            layout(&[4, 1], 7, &[Shard(2), Replicate], &[3, 0, 5]),
            layout(&[2, 3], 1, &[Replicate, Replicate], &[3, 4]),
        ] {
            assert_eq!(decode(&layout_words(&layout)), Some(layout));
        }
        assert_eq!(decode(&[0; LAYOUT_WORDS]), None);
    }

    fn sent(calls: &[(Layout, Layout)], most: usize) -> Vec<u64> {
        let mut words = condition_words(&Conditions::one_host(8)).to_vec();
        for (call, bucket) in calls.iter().zip(0..) {
            let (source, destination) = *call;
            words.extend(Call { source, destination, bucket }.words());
        }
        words.resize(CONDITION_WORDS + most * CALL_WORDS, 0);
        words
    }

    #[test]
    fn the_first_difference_is_named() {
        let a = layout(&[2], 0, &[Shard(0)], &[4]);
        let b = layout(&[2], 2, &[Shard(0)], &[4]);
        let c = layout(&[2], 2, &[Replicate], &[8]);
        let (same, other) = (sent(&[(a, b), (a, c)], 2), sent(&[(a, b), (a, b)], 2));
        assert_eq!(
            part(&same, &other, 3),
            "call 1, destination placements: [Replicate] on rank 0, [Shard(0)] on rank 3"
        );
        let fewer = sent(&[(a, b)], 2);
        assert_eq!(part(&same, &fewer, 1), "call 1: a call on rank 0, no call on rank 1");
        let mut bucket = same.clone();
        bucket[CONDITION_WORDS + CALL_WORDS] = 0;
        assert_eq!(
            part(&bucket, &same, 1),
            "call 1, fused by runtime and stream with: call 0 on rank 0, call 1 on rank 1"
        );
        let mut settings = sent(&[(a, b)], 2);
        settings[3] = 2;
        assert_eq!(part(&fewer, &settings, 1), "NCCL_RESHARD_LB_MODE: 0 on rank 0, 2 on rank 1");
    }

    #[test]
    fn verdicts_carry_the_rule() {
        for (place, rule) in rules::all().enumerate() {
            let error = rule.broken(Violation::new("a", "b"));
            assert_eq!(verdict(Some(&error)), place as u64 + 2);
            assert!(rule.is_cause_of(&explain(place as u64 + 2)));
        }
        assert_eq!(verdict(None), 0);
        let other = Error::RankGone { reason: "it left".into() };
        assert_eq!(verdict(Some(&other)), 1);
        assert!(explain(1).to_string().contains("reasons of its own"));
    }
}
