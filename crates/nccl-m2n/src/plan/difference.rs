//! Where two descriptions of the same work part.

use std::fmt;

use super::Plan;
use super::digest::{condition_difference, condition_words};
use crate::layout::Layout;

/// The first thing that two plans do not have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// What it is: `destination local_shape`.
    pub what: String,
    /// Its value in the first.
    pub first: String,
    /// Its value in the second.
    pub second: String,
}

impl Difference {
    fn new(what: impl Into<String>, first: impl fmt::Debug, second: impl fmt::Debug) -> Self {
        Self { what: what.into(), first: format!("{first:?}"), second: format!("{second:?}") }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} and {}", self.what, self.first, self.second)
    }
}

fn difference_of_layouts(side: &str, first: &Layout, second: &Layout) -> Option<Difference> {
    let what = |field: &str| format!("{side} {field}");
    let (a, b) = (first, second);
    if a.mesh().dims() != b.mesh().dims() {
        Some(Difference::new(what("mesh dims"), a.mesh().dims(), b.mesh().dims()))
    } else if a.mesh() != b.mesh() {
        let starts = (a.mesh().start_rank(), b.mesh().start_rank());
        Some(Difference::new(what("mesh start_rank"), starts.0, starts.1))
    } else if a.placements() != b.placements() {
        Some(Difference::new(what("placements"), a.placements(), b.placements()))
    } else if a.local_shape() != b.local_shape() {
        Some(Difference::new(what("local_shape"), a.local_shape(), b.local_shape()))
    } else if a.data_type() != b.data_type() {
        Some(Difference::new(what("data_type"), a.data_type(), b.data_type()))
    } else {
        None
    }
}

/// The first difference of two calls, each a source and a destination.
pub(crate) fn difference_of_calls(
    first: (&Layout, &Layout),
    second: (&Layout, &Layout),
) -> Option<Difference> {
    let source = difference_of_layouts("source", first.0, second.0);
    source.or_else(|| difference_of_layouts("destination", first.1, second.1))
}

impl Plan {
    /// The first thing that differs from another plan; `None` when they are the same.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<Difference> {
        let calls = difference_of_calls(
            (&self.source, &self.destination),
            (&other.source, &other.destination),
        );
        calls.or_else(|| {
            let ours = condition_words(&self.conditions);
            let theirs = condition_words(&other.conditions);
            let (what, a, b) = condition_difference(&ours, &theirs)?;
            Some(Difference::new(what, a, b))
        })
    }
}

/// The first difference of two lists of plans, such as those that two ranks made of a model, with
/// the number of the entry. `None` when they are the same.
#[must_use]
pub fn first_difference(first: &[Plan], second: &[Plan]) -> Option<(usize, Difference)> {
    let pairs = first.iter().zip(second).enumerate();
    let entry = pairs.into_iter().find_map(|(i, (a, b))| Some((i, a.first_difference(b)?)));
    entry.or_else(|| {
        let lengths = (first.len(), second.len());
        let shorter = lengths.0.min(lengths.1);
        (lengths.0 != lengths.1)
            .then(|| (shorter, Difference::new("number of entries", lengths.0, lengths.1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement::{Replicate, Shard};
    use crate::plan::Conditions;
    use crate::{DataType, Mesh};

    fn plan(start: usize, size: usize, data_type: DataType) -> Plan {
        let mesh = |dims: &[usize], start| Mesh::new(dims, start).unwrap();
        let source =
            Layout::from_global(mesh(&[2], start), &[Shard(0)], &[size], data_type).unwrap();
        let destination = source.on(mesh(&[1, 2], start + 2), &[Replicate, Shard(0)]).unwrap();
        Plan::new(&source, &destination, &Conditions::one_host(6)).unwrap()
    }

    #[test]
    fn the_first_difference_is_named() {
        let ours = plan(0, 8, DataType::Int8);
        assert_eq!(ours.first_difference(&ours), None);
        let text = |other: &Plan| ours.first_difference(other).unwrap().to_string();
        assert_eq!(text(&plan(1, 8, DataType::Int8)), "source mesh start_rank: 0 and 1");
        assert_eq!(text(&plan(0, 4, DataType::Int8)), "source local_shape: [4] and [2]");
        assert_eq!(text(&plan(0, 8, DataType::Uint8)), "source data_type: Int8 and Uint8");
        let mut settings = ours.conditions().settings;
        settings.ctas = 4;
        let conditions = ours.conditions().settings(settings);
        let other = Plan::new(ours.source(), ours.destination(), &conditions).unwrap();
        assert_eq!(text(&other), "NCCL_RESHARD_NUM_CTAS or max_cta: 8 and 4");
        assert_ne!(other.digest(), ours.digest());
    }

    /// Case M7, as far as it needs no communicator.
    #[test]
    fn lists_in_another_order_differ_at_their_first_entry() {
        let (a, b) = (plan(0, 8, DataType::Int8), plan(0, 4, DataType::Int8));
        let (entry, difference) = first_difference(&[a, a, b], &[a, b, a]).unwrap();
        assert_eq!((entry, difference.what.as_str()), (1, "source local_shape"));
        assert_eq!(first_difference(&[a, b], &[a, b]), None);
        let (entry, difference) = first_difference(&[a], &[a, b]).unwrap();
        assert_eq!((entry, difference.to_string().as_str()), (1, "number of entries: 1 and 2"));
    }
}
