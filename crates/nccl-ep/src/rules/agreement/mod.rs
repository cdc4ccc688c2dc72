//! The rule that every rank asks for the same group (EP 2.1, 11).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{RankWords, rules};

/// What each rank gives a group.
pub(crate) struct AgreementFacts<'a> {
    /// What must be equal, by name.
    pub(crate) names: &'a [&'static str],
    /// Each rank's values, in the order of the names.
    pub(crate) values: &'a RankWords,
}

/// A value that is not rank 0's.
struct Difference {
    name: &'static str,
    expected: u64,
    found: u64,
    rank: usize,
}

impl AgreementFacts<'_> {
    fn first_difference(&self) -> Option<Difference> {
        let first = self.values.of(0);
        let others = self.values.iter().enumerate().skip(1);
        let mut values = others.flat_map(|(rank, own)| {
            let pairs = self.names.iter().zip(first.iter().zip(own));
            pairs.map(move |(name, (expected, found))| Difference {
                name,
                expected: *expected,
                found: *found,
                rank,
            })
        });
        values.find(|value| value.expected != value.found)
    }
}

rules! {
    /// Checked by [`Group::create`](crate::Group::create) when the ranks have exchanged what they
    /// were given. The error's argument is the field that differs.
    RULES over AgreementFacts {
        "group.agreement" on "config":
            "every rank gives the group the same configuration and environment"
            ("EP 2.1, 11", Uniform)
            |f| f.first_difference()
                => |at| (format!("{}, as rank 0 has", at.expected),
                    format!("{} on rank {}", at.found, at.rank)) on at.name;
    }
}
