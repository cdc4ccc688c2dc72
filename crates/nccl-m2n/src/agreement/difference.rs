//! Where the words that two ranks sent differ.

use super::call::{CALL_WORDS, Call};
use crate::plan::{CONDITION_WORDS, condition_difference, difference_of_calls};

/// What rank 0 and `rank` do not have in common; each sent its conditions and then its calls.
pub(super) fn describe(zero: &[u64], other: &[u64], rank: usize) -> String {
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
    match (Call::decode(a), Call::decode(b)) {
        (Some(a), Some(b)) => {
            let found =
                difference_of_calls((&a.source, &a.destination), (&b.source, &b.destination));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Placement::{Replicate, Shard};
    use crate::plan::{Conditions, condition_words};
    use crate::{DataType, Layout, Mesh, Placement};

    fn layout(dims: &[usize], start: usize, placements: &[Placement], shape: &[usize]) -> Layout {
        let mesh = Mesh::new(dims, start).unwrap();
        Layout::new(mesh, placements, shape, DataType::Bfloat16).unwrap()
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
            describe(&same, &other, 3),
            "call 1, destination placements: [Replicate] on rank 0, [Shard(0)] on rank 3"
        );
        let fewer = sent(&[(a, b)], 2);
        assert_eq!(describe(&same, &fewer, 1), "call 1: a call on rank 0, no call on rank 1");
        let mut bucket = same.clone();
        bucket[CONDITION_WORDS + CALL_WORDS] = 0;
        assert_eq!(
            describe(&bucket, &same, 1),
            "call 1, fused by runtime and stream with: call 0 on rank 0, call 1 on rank 1"
        );
        let mut settings = sent(&[(a, b)], 2);
        settings[3] = 2;
        assert_eq!(
            describe(&fewer, &settings, 1),
            "NCCL_RESHARD_LB_MODE: 0 on rank 0, 2 on rank 1"
        );
    }
}
